#!/usr/bin/env bash
#PBS -N digits
#PBS -j oe
#PBS -l select=2:ncpus=8:mpiprocs=2:ngpus=2:mem=65536mb
#PBS -l place=scatter:excl
#PBS -l walltime=01:30:00
#PBS -q long
#PBS -A physics
#PBS -W depend=afterok:17
#PBS -r y
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher torchrun, scheduler pbs
# Written by Bareboat 0.1.0, plan sha256:c278e873ee5a. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded interface kernel_cache modules names output requeue sealed signals_by_file '\
'warning watching world '
start=nodes ranks_per_node=2 world_size=4 run_apart=user rung=1 requested=(4 1 0 68719476736)
site_modules=(cuda/12.4)
kernel_cache=/scratch/ada/bareboat/kernel-caches/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaaaa/7c33e287f5bfb02b
kernel_variables=(CUDA_CACHE_PATH CUPY_CACHE_DIR JAX_COMPILATION_CACHE_DIR MIOPEN_CUSTOM_CACHE_DIR
  MIOPEN_USER_DB_PATH PYTORCH_KERNEL_CACHE_PATH TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR)
kernel_place=/run/bareboat/BAREBOAT_KERNELS warning_after_s=5100 BAREBOAT_NODES=2
BAREBOAT_JOB="${PBS_JOBID:-${SLURM_JOB_ID:-$$}}"

name_run() {
  BAREBOAT_RUN="${1:-digits-$BAREBOAT_JOB}"
  BAREBOAT_CONTROL=/home/ada/digits/bareboat-runs/digits-$BAREBOAT_JOB/control
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
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv CUDA_CACHE_MAXSIZE 1073741824 --setenv HOME /home/ada --setenv LANG C.UTF-8 \
    --setenv LOGNAME ada --setenv OMP_NUM_THREADS 1 --setenv PATH /env/bin:/usr/bin \
    --setenv PYTHONNOUSERSITE 1 --setenv TZ Europe/Rome --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

job_command() {
  pass_variables GLOO_SOCKET_IFNAME CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER ROCR_VISIBLE_DEVICES \
    HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL SLURM_JOB_GPUS SLURM_STEP_GPUS CUDA_MPS_PIPE_DIRECTORY \
    CUDA_MPS_LOG_DIRECTORY CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_CACHE_PATH CUPY_CACHE_DIR \
    JAX_COMPILATION_CACHE_DIR MIOPEN_CUSTOM_CACHE_DIR MIOPEN_USER_DB_PATH PYTORCH_KERNEL_CACHE_PATH \
    TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
    --seccomp 197 197< /scratch/ada/store/programs/2262571a73a496c1/full.bpf \
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
    ${passed[@]+"${passed[@]}"} --chdir /home/ada/digits --die-with-parent -- /env/bin/python -c \
    "$text_7e75ed9af793" "$BAREBOAT_NODE" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" --nnodes=2 \
    --node-rank="$BAREBOAT_NODE" --master-addr="$BAREBOAT_MASTER" --master-port="$BAREBOAT_PORT" \
    --nproc-per-node=2 --max-restarts=0 --log-dir=/run/bareboat/BAREBOAT_RUN_DIR/torchrun/"$BAREBOAT_NODE" \
    --no-python /bin/sh -c \
    'log=$BAREBOAT_RUN_DIR/logs/$RANK; "$@" >> "$log.out" 2>> "$log.err"; code=$?; echo "$R'\
'ANK $code" >> "$BAREBOAT_RUN_DIR/exits.$GROUP_RANK"; exit "$code"' rank python digits.py --epochs 40
}

# Here is the library.

main "$@"
