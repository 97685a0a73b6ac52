#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher image-mpirun, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:9c0c8e5ac3b4. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded requeue sealed secret ' start=nodes ranks_per_node=2 world_size=4 run_apart=user rung=1
requested=(4 0 0 0) BAREBOAT_NODES=2 BAREBOAT_JOB="${SLURM_JOB_ID:-$$}"

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

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv HOME /home/ada --setenv LANG C.UTF-8 --setenv LOCAL_WORLD_SIZE 2 --setenv LOGNAME ada \
    --setenv OMP_NUM_THREADS 1 --setenv PATH /env/bin:/usr/bin --setenv PYTHONNOUSERSITE 1 \
    --setenv TZ Europe/Rome --setenv USER ada --setenv WORLD_SIZE 4
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

job_command() {
  pass_variables BAREBOAT_SECRET
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
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
    "$text_fb78720d42e4" --nodes 2 --ranks 2 --node "$BAREBOAT_NODE" --master "$BAREBOAT_MASTER" --port \
    "$BAREBOAT_PORT" --launcher 20 --check 15 -- /usr/bin/mpirun --mca plm rsh --mca plm_rsh_agent AGENT \
    --mca plm_rsh_no_tree_spawn 1 --leave-session-attached --host HOSTS -n 4 --map-by ppr:2:node --bind-to \
    none --oversubscribe /env/bin/python -c "$text_5362a46d8fbb" --size 4 --timeout 120 --tell \
    OMPI_MCA_btl_base_verbose=1 --tell OMPI_MCA_mtl_base_verbose=1 --tell OMPI_MCA_pml_base_verbose=10 \
    --tell UCX_LOG_LEVEL=info /bin/sh -c "$text_afa588244394" rank python digits.py --epochs 40
}

# Here is the library.

main "$@"
