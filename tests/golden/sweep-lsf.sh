#!/usr/bin/env bash
#BSUB -J "digits[1-6]%2"
#BSUB -n 4
#BSUB -R "span[ptile=2]"
#BSUB -W 1:30
#BSUB -r
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher ranks, scheduler lsf
# Written by Bareboat 0.1.0, plan sha256:10ce5b26d3a6. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded interface log names output requeue sealed signals_by_file sweep watching wo'\
'rld '
start=ranks ranks_per_node=2 world_size=4 run_apart=user rung=1 requested=(1 0 0 0)
sweep_names=(BAREBOAT_SWEEP_LR BAREBOAT_SWEEP_SEED) sweep_name=digits sweep_points=6 BAREBOAT_NODES=2
BAREBOAT_JOB="${LSB_JOBID:-$$}[${LSB_JOBINDEX:-0}]"

name_run() {
  BAREBOAT_RUN="${1:-digits.$((${LSB_JOBINDEX:-0} - 1))}"
  BAREBOAT_CONTROL=/home/ada/digits/bareboat-runs/digits/points/${BAREBOAT_RUN##*.}/control
}

requirements() {
  need /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa 'a layer of the image' 'bareboat image capture --fresh'
  need /opt/bwrap 'the engine bubblewrap' 'bareboat doctor'
  need /home/ada/digits 'the working directory' \
    'submit from a directory on a file system that all nodes share'
  need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'
}

rank_names() {
  unset GLOO_SOCKET_IFNAME
  [ -z "$BAREBOAT_INTERFACE" ] || GLOO_SOCKET_IFNAME=$BAREBOAT_INTERFACE
}

seal_environment() {
  seal_long --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv BAREBOAT_SWEEP_INDEX "$BAREBOAT_SWEEP_INDEX" --setenv BAREBOAT_SWEEP_LR "$BAREBOAT_SWEEP_LR" \
    --setenv BAREBOAT_SWEEP_SEED "$BAREBOAT_SWEEP_SEED" --setenv HOME /home/ada --setenv LANG C.UTF-8 \
    --setenv LOGNAME ada --setenv OMP_NUM_THREADS 1 --setenv PATH /env/bin:/usr/bin \
    --setenv PYTHONNOUSERSITE 1 --setenv TAG 'lr '"$BAREBOAT_SWEEP_LR" --setenv TZ Europe/Rome \
    --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

job_command() {
  pass_variables RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME
  BAREBOAT_SCRIPT=$BAREBOAT_RUN /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
    --seccomp 197 197< /scratch/ada/store/programs/2262571a73a496c1/full.bpf \
    --bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys --tmpfs /tmp --tmpfs /var/tmp \
    --tmpfs /run --tmpfs /home/ada --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
    --ro-bind-try /etc/hosts /etc/hosts --dir /home/ada --bind /home/ada/digits /home/ada/digits \
    --ro-bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
'aaaaaaaaaaaa/home/ada/my digits/.venv' '/home/ada/my digits/.venv' \
    ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} --remount-ro / \
    --clearenv --args "$sealed" ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
    ${passed[@]+"${passed[@]}"} --chdir /home/ada/digits --die-with-parent -- python train.py \
    --lr="$BAREBOAT_SWEEP_LR" --seed "$BAREBOAT_SWEEP_SEED"
}

# Here is the library.

main "$@"
