#!/usr/bin/env bash
# digits: 1 node x 1 ranks; engine bubblewrap, launcher single, scheduler local
# Written by Bareboat 0.1.0, plan sha256:00ae86725456. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded kernel_cache names requeue sealed ' start=nodes ranks_per_node=1 world_size=1
run_apart=user rung=1 requested=(0 1 0 0)
kernel_cache=/scratch/ada/bareboat/kernel-caches/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaaaa/7c33e287f5bfb02b
kernel_variables=(CUDA_CACHE_PATH CUPY_CACHE_DIR JAX_COMPILATION_CACHE_DIR MIOPEN_CUSTOM_CACHE_DIR
  MIOPEN_USER_DB_PATH PYTORCH_KERNEL_CACHE_PATH TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR)
kernel_place=/run/bareboat/BAREBOAT_KERNELS run_name=digits

requirements() {
  need /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa 'a layer of the image' 'bareboat image capture --fresh'
  need /opt/bwrap 'the engine bubblewrap' 'bareboat doctor'
  need /home/ada/digits 'the working directory' 'mkdir -p /home/ada/digits'
  need /scratch/ada/bareboat/drivers/nvidia 'a directory of the GPU driver' \
    'bareboat plan JOB  # on this machine'
  need /usr/lib64 'a directory of the GPU driver' 'bareboat plan JOB  # on this machine'
  need /usr/bin 'a directory of the GPU driver' 'bareboat plan JOB  # on this machine'
  need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'
}

rank_names() {
  [ -t 1 ] || unset TERM COLORTERM # bash sets TERM, also without a terminal
}

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv CUDA_CACHE_MAXSIZE 1073741824 --setenv HOME /home/ada --setenv LANG C.UTF-8 \
    --setenv LD_LIBRARY_PATH /run/bareboat/driver/lib --setenv LOGNAME ada --setenv OMP_NUM_THREADS 1 \
    --setenv PATH /run/bareboat/driver/bin:/env/bin:/usr/bin --setenv PYTHONNOUSERSITE 1 \
    --setenv TRITON_LIBCUDA_PATH /run/bareboat/driver/lib --setenv TZ Europe/Rome --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

job_command() {
  pass_variables TERM COLORTERM CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER ROCR_VISIBLE_DEVICES \
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
    --ro-bind /scratch/ada/bareboat/drivers/nvidia /run/bareboat/driver \
    --ro-bind /usr/lib64 /run/bareboat/host/0 --ro-bind /usr/bin /run/bareboat/host/1 \
    ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} \
    ${BAREBOAT_KERNELS:+--bind "$BAREBOAT_KERNELS" /run/bareboat/BAREBOAT_KERNELS} --remount-ro / \
    --clearenv --args "$sealed" ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
    ${passed[@]+"${passed[@]}"} --chdir /home/ada/digits --die-with-parent -- python train.py
}

# Here is the library.

main "$@"
