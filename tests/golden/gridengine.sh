#!/usr/bin/env bash
#$ -N digits
#$ -S /bin/bash
#$ -j y
#$ -cwd
#$ -pe mpi8 16
#$ -l h_rt=5400
#$ -l h_vmem=8192M
#$ -l gpu=2
#$ -l exclusive=true
#$ -q long
#$ -P physics
#$ -hold_jid 17
#$ -r y
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher ranks, scheduler gridengine
# Written by Bareboat 0.1.0, plan sha256:DIGEST. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded interface kernel_cache modules names output requeue sealed signals_by_file '\
'warning watching world '
start=ranks ranks_per_node=2 world_size=4 run_apart=user rung=1 requested=(4 1 1 68719476736)
site_modules=(cuda/12.4)
kernel_cache=/scratch/ada/bareboat/kernel-caches/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaaaa/7c33e287f5bfb02b
kernel_variables=(CUDA_CACHE_PATH CUPY_CACHE_DIR JAX_COMPILATION_CACHE_DIR MIOPEN_CUSTOM_CACHE_DIR
  MIOPEN_USER_DB_PATH PYTORCH_KERNEL_CACHE_PATH TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR)
kernel_place=/run/bareboat/BAREBOAT_KERNELS warning_after_s=5100 BAREBOAT_NODES=2 BAREBOAT_JOB="${JOB_ID:-$$}"

name_run() {
  BAREBOAT_RUN="${1:-digits-$BAREBOAT_JOB}"
  BAREBOAT_CONTROL=/home/ada/digits/bareboat-runs/digits-$BAREBOAT_JOB/control
}

requirements() {
  need /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa 'the image'"'"'s tree' 'bareboat plan --prepare …   # makes it again'
  need /opt/bwrap 'the engine bubblewrap' 'bareboat doctor'
  need /home/ada/digits 'the working directory' \
    'submit from a directory on a file system that all nodes share'
  need /scratch/ada/store/programs/2262571a73a496c1 'the programs of Bareboat' 'bareboat plan JOB'
}

rank_names() {
  unset GLOO_SOCKET_IFNAME
  [ -z "$BAREBOAT_INTERFACE" ] || GLOO_SOCKET_IFNAME=$BAREBOAT_INTERFACE
}

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv CUDA_CACHE_MAXSIZE 1073741824 --setenv HOME /home/ada --setenv LANG C.UTF-8 \
    --setenv LOGNAME ada --setenv OMP_NUM_THREADS 1 --setenv PATH /env/bin:/usr/bin \
    --setenv PYTHONNOUSERSITE 1 --setenv TZ Europe/Rome --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

job_command() {
  pass_variables RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME \
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL \
    SLURM_JOB_GPUS SLURM_STEP_GPUS CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY \
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_CACHE_PATH CUPY_CACHE_DIR JAX_COMPILATION_CACHE_DIR \
    MIOPEN_CUSTOM_CACHE_DIR MIOPEN_USER_DB_PATH PYTORCH_KERNEL_CACHE_PATH TORCHINDUCTOR_CACHE_DIR \
    TRITON_CACHE_DIR
  BAREBOAT_SCRIPT=$BAREBOAT_RUN /scratch/ada/store/programs/2262571a73a496c1/start.run kbw /opt/bwrap \
    --bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys --tmpfs /tmp --tmpfs /var/tmp \
    --tmpfs /run --tmpfs /home/ada --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
    --ro-bind-try /etc/hosts /etc/hosts --dir /home/ada --bind /home/ada/digits /home/ada/digits \
    --ro-bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
'aaaaaaaaaaaa/home/ada/my digits/.venv' '/home/ada/my digits/.venv' \
    ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} \
    ${BAREBOAT_KERNELS:+--bind "$BAREBOAT_KERNELS" /run/bareboat/BAREBOAT_KERNELS} --remount-ro / \
    --clearenv --args "$sealed" ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
    ${passed[@]+"${passed[@]}"} ${BAREBOAT_BLOCK:+--block-fd "$BAREBOAT_BLOCK"} --chdir /home/ada/digits \
    --die-with-parent -- /proc/self/fd/197 197< /scratch/ada/store/programs/2262571a73a496c1/full.run \
    python digits.py --epochs 40
}

# Here is the library.

main "$@"
