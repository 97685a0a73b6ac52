#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher horovod, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:2d3d0c600fa5. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded interface names output requeue sealed secret watching world ' start=ranks
ranks_per_node=2 world_size=4 run_apart=user rung=1 requested=(4 0 0 0) BAREBOAT_NODES=2
BAREBOAT_JOB="${SLURM_JOB_ID:-$$}"

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
  HOROVOD_RANK=$RANK HOROVOD_SIZE=$WORLD_SIZE
  HOROVOD_LOCAL_RANK=$LOCAL_RANK HOROVOD_LOCAL_SIZE=$LOCAL_WORLD_SIZE
  HOROVOD_CROSS_RANK=$BAREBOAT_NODE HOROVOD_CROSS_SIZE=2
  HOROVOD_HOSTNAME=$BAREBOAT_HOST
  HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo
  HOROVOD_GLOO_RENDEZVOUS_ADDR=$BAREBOAT_MASTER HOROVOD_GLOO_RENDEZVOUS_PORT=$BAREBOAT_PORT
  unset HOROVOD_GLOO_IFACE
  [ -z "$BAREBOAT_INTERFACE" ] || HOROVOD_GLOO_IFACE=$BAREBOAT_INTERFACE
}

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv HOME /home/ada --setenv LANG C.UTF-8 --setenv LOGNAME ada --setenv OMPI_MCA_plm isolated \
    --setenv OMP_NUM_THREADS 1 --setenv PATH /env/bin:/usr/bin --setenv PYTHONNOUSERSITE 1 \
    --setenv TZ Europe/Rome --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

job_command() {
  pass_variables RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME \
    BAREBOAT_SECRET "${!HOROVOD_@}"
  BAREBOAT_SCRIPT=$BAREBOAT_RUN /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
    --seccomp 197 197< /scratch/ada/store/programs/2262571a73a496c1/full.bpf \
    --bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys --tmpfs /tmp --tmpfs /var/tmp \
    --tmpfs /run --tmpfs /home/ada --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
    --ro-bind-try /etc/hosts /etc/hosts --dir /home/ada --bind /home/ada/digits /home/ada/digits \
    ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} --remount-ro / \
    --clearenv --args "$sealed" ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
    ${passed[@]+"${passed[@]}"} --chdir /home/ada/digits --die-with-parent -- /env/bin/python -c \
    "$text_2837e921f179" python digits.py --epochs 40
}

# Here is the library.

main "$@"
