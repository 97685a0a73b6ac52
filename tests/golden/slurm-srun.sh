#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher srun, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:DIGEST. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded mpi_check names requeue sealed watching world ' start=program ranks_per_node=2
world_size=4 run_apart=user rung=1 requested=(4 0 1 0) launch='srun --mpi=pmix' rank_says=bareboat-rank
BAREBOAT_NODES=2 BAREBOAT_JOB="${SLURM_JOB_ID:-$$}"

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
  RANK=${SLURM_PROCID:-0}
  LOCAL_RANK=${SLURM_LOCALID:-0} LOCAL_WORLD_SIZE=2
  unset OMPI_MCA_btl_vader_single_copy_mechanism PMIX_MCA_gds PMIX_MCA_psec
}

program() { # starts the ranks
  exec srun --mpi=pmix --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=4 --kill-on-bad-exit=1 \
    --label "$@"
}

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv HOME /home/ada --setenv LANG C.UTF-8 --setenv LOGNAME ada \
    --setenv OMPI_MCA_btl_vader_single_copy_mechanism none --setenv OMP_NUM_THREADS 1 \
    --setenv PATH /env/bin:/usr/bin --setenv PMIX_MCA_gds hash --setenv PMIX_MCA_psec native \
    --setenv PYTHONNOUSERSITE 1 --setenv TZ Europe/Rome --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

container() {
  pass_variables RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME \
    "${!PMIX_@}" "${!PMI_@}" "${!PMI2_@}" "${!OMPI_@}" "${!PRTE_@}" "${!SLURM_@}" "${!MPI_LOCAL@}" \
    "${!HYDI_@}" "${!MPIEXEC_@}"
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/start.run kbw /opt/bwrap \
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
    ${passed[@]+"${passed[@]}"} ${BAREBOAT_BLOCK:+--block-fd "$BAREBOAT_BLOCK"} --chdir /home/ada/digits \
    --die-with-parent -- /proc/self/fd/197 197< /scratch/ada/store/programs/2262571a73a496c1/full.run "$@"
}

check_command() {
  container /env/bin/python -c "$text_DIGEST" --size 4 --timeout 120 --tell \
    OMPI_MCA_btl_base_verbose=1 --tell OMPI_MCA_mtl_base_verbose=1 --tell OMPI_MCA_pml_base_verbose=10 \
    --tell UCX_LOG_LEVEL=info
}

job_command() { container python -c "$text_DIGEST" digits.py --epochs 40; }

# Here is the library.

main "$@"
