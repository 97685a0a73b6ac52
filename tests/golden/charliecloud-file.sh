#!/usr/bin/env bash
# digits, 2 ranks: 1 node x 2 ranks; engine charliecloud, launcher torchrun, scheduler local
# Written by Bareboat 0.1.0, plan sha256:07b396e20c83. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded one_world output requeue watching world ' start=nodes ranks_per_node=2 world_size=2
run_apart=user rung=1 requested=(0 0 0 0) run_name=digits--2-ranks

requirements() {
  need /scratch/ada/bareboat/packed/image.squashfs 'the packed image' \
    'bareboat plan --prepare --form file …   # packs the image'
  need /opt/bin/charliecloud 'the engine charliecloud' 'bareboat doctor'
  need '/home/ada/my digits' 'the working directory' 'mkdir -p '"'"'/home/ada/my digits'"'"''
  need /data/digits 'the source of a mount' 'correct the mounts'
  need /scratch/ada/out 'the source of a mount' 'correct the mounts'
  need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'
}

job_command() {
  export BAREBOAT_ENV_0=lo BAREBOAT_ENV_1=1
  exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /usr/bin/env -i -S \
    '"GLOO_SOCKET_IFNAME=${BAREBOAT_ENV_0}" "OMP_NUM_THREADS=${BAREBOAT_ENV_1}"' \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin USER=ada /usr/bin/unshare --user --map-root-user --mount \
    --propagation private /usr/bin/bash \
    -c "$text_6d3680437eb1" read-only /scratch/ada/bareboat/packed/stage 2 /data/digits \
    /scratch/ada/store/programs/2262571a73a496c1/full.run /opt/bin/charliecloud --uid=4711 --gid=100 \
    --unset-env=SHLVL --unset-env=_ --mount=/scratch/ada/bareboat/packed/mounted --private-tmp --no-passwd \
    --bind=/scratch/ada/bareboat/packed/mounted/tmp:/tmp/view ${BAREBOAT_METER_DIR:+\
--bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/2/bareboat/BAREBOAT_METER\
_DIR} ${BAREBOAT_RUN_DIR:+\
--bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/2/bareboat/BAREBOAT_RUN_DIR} \
    --bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/2/bareboat/filter \
    '--bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/3/my digits/.venv' \
    '--bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/3/my digits/out' \
    '--bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/3/my digits' \
    --bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/1 \
    --bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/2 \
    --bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/scratch/3 \
    --bind=/scratch/ada/bareboat/packed/mounted/run:/tmp/tmp \
    --bind=/scratch/ada/bareboat/packed/stage:/tmp/aside/read-only \
    '--bind=/scratch/ada/bareboat/packed/mounted/home/ada/my digits/.venv:/tmp/aside/2' \
    --bind=/scratch/ada/bareboat/packed/mounted/tmp/aside/read-only/0:/data \
    --bind=/scratch/ada/bareboat/packed/mounted/tmp/view/scratch/3:/home/ada \
    '--bind=/home/ada/my digits:/home/ada/my digits' \
    '--bind=/scratch/ada/bareboat/packed/mounted/tmp/aside/2:/home/ada/my digits/.venv' \
    '--bind=/scratch/ada/out:/home/ada/my digits/out' \
    --bind=/scratch/ada/bareboat/packed/mounted/tmp/view/scratch/2:/run \
    --bind=/scratch/ada/bareboat/packed/mounted/tmp/aside/read-only/1:/run/bareboat/filter \
    --bind=/scratch/ada/bareboat/packed/mounted/tmp/view/scratch/1:/var/tmp \
    ${BAREBOAT_METER_DIR:+--bind="$BAREBOAT_METER_DIR":/run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind="$BAREBOAT_RUN_DIR":/run/bareboat/BAREBOAT_RUN_DIR} \
    --bind=/scratch/ada/bareboat/packed/mounted/tmp/view/tmp:/tmp --env-no-expand --set-env=BARE\
'BOAT_IMAGE='"'"'sh'\
a256:aaaaaaaaa\
aaaaaaaaaaaaaa\
aaaaaaaaaaaaaa\
aaaaaaaaaaaaaa\
'aaaaaaaaaaaaa'"'"'' '--set-env=HOME='"'"'/home/ada'"'"'' '--set-env=LANG='"'"'C.UTF-8'"'"'' \
    '--set-env=LOGNAME='"'"'ada'"'"'' '--set-env=PATH='"'"'/env/bin:/usr/bin'"'"'' \
    '--set-env=PWD='"'"'/home/ada/my digits'"'"'' '--set-env=PYTHONNOUSERSITE='"'"'1'"'"'' \
    '--set-env=TZ='"'"'Europe/Rome'"'"'' '--set-env=USER='"'"'ada'"'"'' \
    ${BAREBOAT_RUN:+'--set-env=BAREBOAT_RUN='"'"''"$BAREBOAT_RUN"''"'"''} ${BAREBOAT_METER_DIR:+\
'--set-env=BAREBOAT_METER_DIR='"'"''/run/bareboat/BAREBOAT_METER_DIR''"'"''} \
    ${BAREBOAT_GATE:+'--set-env=BAREBOAT_GATE='"'"''"$BAREBOAT_GATE"''"'"''} ${BAREBOAT_RUN_DIR:+\
'--set-env=BAREBOAT_RUN_DIR='"'"''/run/bareboat/BAREBOAT_RUN_DIR''"'"''} \
    '--cd=/home/ada/my digits' /scratch/ada/bareboat/packed/image.squashfs -- /run/bareboat/filter /bin/sh \
    -c 'trap : TERM INT HUP; "$@"; exit $?' tell /usr/bin/env -u CH_RUNNING -- /env/bin/python -m \
    torch.distributed.run --standalone --local-addr=127.0.0.1 --nproc-per-node=2 --max-restarts=0 \
    --log-dir=/run/bareboat/BAREBOAT_RUN_DIR/torchrun/0 --no-python /bin/sh -c \
    'log=$BAREBOAT_RUN_DIR/logs/$RANK; "$@" >> "$log.out" 2>> "$log.err"; code=$?; echo "$R'\
'ANK $code" >> "$BAREBOAT_RUN_DIR/exits.$GROUP_RANK"; exit "$code"' rank python digits.py --note \
    'it'"'"'s $5' ''
}

# Here is the library.

main "$@"
