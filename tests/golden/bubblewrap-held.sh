#!/usr/bin/env bash
# digits, 2 ranks: 1 node x 2 ranks; engine bubblewrap, launcher torchrun, scheduler local
# Written by Bareboat 0.1.0, plan sha256:DIGEST. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded one_world output requeue sealed watching world ' start=nodes ranks_per_node=2
world_size=2 run_apart=user rung=1 requested=(0 0 1 0) run_name=digits--2-ranks

requirements() {
  need /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa 'the image'"'"'s tree' 'bareboat plan --prepare …   # makes it again'
  need /opt/bwrap 'the engine bubblewrap' 'bareboat doctor'
  need '/home/ada/my digits' 'the working directory' 'mkdir -p '"'"'/home/ada/my digits'"'"''
  need /data/digits 'the source of a mount' 'correct the mounts'
  need /scratch/ada/out 'the source of a mount' 'correct the mounts'
  need /scratch/ada/store/programs/2262571a73a496c1 'the programs of Bareboat' 'bareboat plan JOB'
}

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv GLOO_SOCKET_IFNAME lo --setenv HOME /home/ada --setenv LANG C.UTF-8 --setenv LOGNAME ada \
    --setenv OMP_NUM_THREADS 1 --setenv PATH /env/bin:/usr/bin --setenv PYTHONNOUSERSITE 1 \
    --setenv TZ Europe/Rome --setenv USER ada
}

job_command() {
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/start.run kbw /opt/bwrap \
    --bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys \
    --overlay-src /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa/tmp --tmp-overlay /tmp --tmpfs /var/tmp --tmpfs /run \
    --overlay-src /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa/home/ada --tmp-overlay /home/ada --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
    --ro-bind-try /etc/hosts /etc/hosts --dir /home/ada --ro-bind /data/digits /data \
    --bind '/home/ada/my digits' '/home/ada/my digits' \
    --ro-bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
'aaaaaaaaaaaa/home/ada/my digits/.venv' '/home/ada/my digits/.venv' \
    --bind /scratch/ada/out '/home/ada/my digits/out' \
    ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} --remount-ro / \
    --clearenv --args "$sealed" ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
    ${BAREBOAT_BLOCK:+--block-fd "$BAREBOAT_BLOCK"} --chdir '/home/ada/my digits' --die-with-parent -- \
    /proc/self/fd/197 197< /scratch/ada/store/programs/2262571a73a496c1/full.run /env/bin/python -c \
    "$text_DIGEST" --standalone --local-addr=127.0.0.1 --nproc-per-node=2 --max-restarts=0 \
    --log-dir=/run/bareboat/BAREBOAT_RUN_DIR/torchrun/0 --no-python /bin/sh -c "$text_DIGEST" rank \
    python digits.py --note 'it'"'"'s $5' ''
}

# Here is the library.

main "$@"
