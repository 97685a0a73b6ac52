#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher mpirun, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:9480564b939f. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' delivery discarded mpi_check names requeue sealed watching world ' start=program ranks_per_node=2
world_size=4 run_apart=user rung=1 requested=(4 0 0 0) scratch=/local/scratch launch='mpirun (PRRTE) 5.0.3'
rank_says=bareboat-rank image_archive=/scratch/ada/bareboat/packed/image.tar
image_name=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
image_shared=/scratch/ada/bareboat/flat/sha256 image_own='' BAREBOAT_TREES=/local/scratch/bareboat-4711/flat
image_inodes=32389 BAREBOAT_NODES=2 BAREBOAT_JOB="${SLURM_JOB_ID:-$$}"

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
  need /scratch/ada/bareboat/packed/image.tar 'the archive of the image' \
    'bareboat plan --prepare JOB   # makes it'
}

rank_names() {
  RANK=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}
  LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}} LOCAL_WORLD_SIZE=2
  unset LD_LIBRARY_PATH OMPI_LIBDIR_LOC OMPI_MCA_btl_vader_single_copy_mechanism \
    OMPI_MCA_mca_base_component_path OMPI_MCA_schizo OPAL_PREFIX PMIX_INSTALL_PREFIX PMIX_MCA_gds \
    PMIX_MCA_psec PMIX_PREFIX PRTE_PREFIX
}

program() { # starts the ranks
  exec /opt/sw/bin/mpirun --prtemca prte_tmpdir_base /dev/shm -n 4 --map-by ppr:2:node --bind-to none \
    --oversubscribe "$@"
}

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv HOME /home/ada --setenv LANG C.UTF-8 --setenv LOGNAME ada \
    --setenv OMPI_MCA_btl_vader_single_copy_mechanism none --setenv OMPI_MCA_schizo '^orte,slurm' \
    --setenv OMP_NUM_THREADS 1 --setenv PATH /env/bin:/usr/bin --setenv PMIX_MCA_gds hash \
    --setenv PMIX_MCA_psec native --setenv PYTHONNOUSERSITE 1 --setenv TZ Europe/Rome --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

container() {
  pass_variables RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME \
    "${!PMIX_@}" "${!PMI_@}" "${!PMI2_@}" "${!OMPI_@}" "${!PRTE_@}" "${!SLURM_@}" "${!MPI_LOCAL@}" \
    "${!HYDI_@}" "${!MPIEXEC_@}"
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
    --seccomp 197 197< /scratch/ada/store/programs/2262571a73a496c1/full.bpf \
    --bind "$BAREBOAT_TREES"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa / \
    --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys --tmpfs /tmp --tmpfs /var/tmp --tmpfs /run \
    --tmpfs /home/ada --ro-bind-try /etc/resolv.conf /etc/resolv.conf --ro-bind-try /etc/hosts /etc/hosts \
    --dir /home/ada --bind /home/ada/digits /home/ada/digits \
    ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} --remount-ro / \
    --clearenv --args "$sealed" ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
    ${passed[@]+"${passed[@]}"} --chdir /home/ada/digits --die-with-parent -- "$@"
}

check_command() {
  container /env/bin/python -c "$text_5362a46d8fbb" --size 4 --timeout 120 --tell \
    OMPI_MCA_btl_base_verbose=1 --tell OMPI_MCA_mtl_base_verbose=1 --tell OMPI_MCA_pml_base_verbose=10 \
    --tell UCX_LOG_LEVEL=info
}

job_command() { container python digits.py --epochs 40; }

# Here is the library.

main "$@"
