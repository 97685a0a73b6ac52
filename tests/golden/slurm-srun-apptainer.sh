#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine apptainer, launcher srun, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:54de04032215. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded mpi_check names requeue sealed watching world ' start=program ranks_per_node=2
world_size=4 run_apart=user rung=1 requested=(4 0 0 0) launch='srun --mpi=pmix' rank_says=bareboat-rank
BAREBOAT_NODES=2 BAREBOAT_JOB="${SLURM_JOB_ID:-$$}"

name_run() {
  BAREBOAT_RUN="${1:-digits-$BAREBOAT_JOB}"
  BAREBOAT_CONTROL=/home/ada/digits/bareboat-runs/digits-$BAREBOAT_JOB/control
}

requirements() {
  need /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa 'a layer of the image' 'bareboat image capture --fresh'
  need /opt/bin/apptainer 'the engine apptainer' 'bareboat doctor'
  need /home/ada/digits 'the working directory' \
    'submit from a directory on a file system that all nodes share'
  need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'
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
  seal sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa /home/ada C.UTF-8 ada none 1 \
    /env/bin:/usr/bin hash native 1 Europe/Rome ada
}

pass_variable() { passed+=("$name"="$value"); } # $name with its $value

container() {
  exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /usr/bin/env -i PATH="$PATH" \
    APPTAINER_CONFIGDIR=/proc/self/bareboat SINGULARITY_CONFIGDIR=/proc/self/bareboat bash -c \
    'exec {file}<<<"$0"; program=$1; shift; exec "$program" --silent --nocolor --config "/d'\
'ev/fd/$file" "$@"' 'sessiondir max size = 131072
enable overlay = no
' /opt/bin/apptainer exec --userns --cleanenv --no-home --no-mount=home,cwd,tmp,hostfs,bind-paths \
    --scratch=/.singularity.d/env --scratch=/home/ada --scratch=/home/ada/digits --scratch=/run \
    --scratch=/tmp --scratch=/var/tmp \
    --mount=type=bind,source=/usr/bin/env,destination=/.singularity.d/bareboat/env,ro \
    --mount=type=bind,source=/lib64/ld.so,destination=/.singularity.d/bareboat/ld.so,ro \
    --mount=type=bind,source=/usr/bin/bash,destination=/.singularity.d/bareboat/bash,ro \
    --mount=type=bind,source=/scratch/ada/store/programs/2262571a73a496c1/terminal.run,des\
tination=/.singularity.d/bareboat/filter,ro --mount=type=bind,source=/etc/hosts,destination=/etc/hosts,ro \
    --mount=type=bind,source=/home/ada/digits,destination=/home/ada/digits ${BAREBOAT_METER_DIR:+\
'--mount=type=bind,"source='"$BAREBOAT_METER_DIR"'","destination='"$BAREBOAT_METER_DIR"\
'"'} ${BAREBOAT_RUN_DIR:+\
'--mount=type=bind,"source='"$BAREBOAT_RUN_DIR"'","destination='"$BAREBOAT_RUN_DIR"'"'} \
    --pwd=/home/ada/digits \
    /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaa /.singularity.d/bareboat/filter /.singularity.d/bareboat/bash -c \
    'mapfile -d "" -t values <&"$0"; at=$0; exec {at}<&-; for number in "${!values[@]}"; do'\
' export "BAREBOAT_ENV_$number=${values[number]}"; done; exec "$@"' "$sealed" \
    /.singularity.d/bareboat/ld.so --library-path /.singularity.d/bareboat /.singularity.d/bareboat/env -i \
    -S '"BAREBOAT_IMAGE=${BAREBOAT_ENV_0}" "HOME=${BAREBOAT_ENV_1}" "LANG=${BAREBOAT_ENV_2}" "'\
'LOGNAME=${BAREBOAT_ENV_3}" "OMPI_MCA_btl_vader_single_copy_mechanism=${BAREBOAT_ENV_4}'\
'" "OMP_NUM_THREADS=${BAREBOAT_ENV_5}" "PATH=${BAREBOAT_ENV_6}" "PMIX_MCA_gds=${BAREBOA'\
'T_ENV_7}" "PMIX_MCA_psec=${BAREBOAT_ENV_8}" "PYTHONNOUSERSITE=${BAREBOAT_ENV_9}" "TZ=$'\
'{BAREBOAT_ENV_10}" "USER=${BAREBOAT_ENV_11}"' ${BAREBOAT_RUN:+BAREBOAT_RUN="$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+BAREBOAT_METER_DIR="$BAREBOAT_METER_DIR"} \
    ${BAREBOAT_GATE:+BAREBOAT_GATE="$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+BAREBOAT_RUN_DIR="$BAREBOAT_RUN_DIR"} "$@"
}

check_command() {
  pass_variables RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME \
    "${!PMIX_@}" "${!PMI_@}" "${!PMI2_@}" "${!OMPI_@}" "${!PRTE_@}" "${!SLURM_@}" "${!MPI_LOCAL@}" \
    "${!HYDI_@}" "${!MPIEXEC_@}"
  container ${passed[@]+"${passed[@]}"} /env/bin/python -c "$text_5362a46d8fbb" --size 4 --timeout 120 \
    --tell OMPI_MCA_btl_base_verbose=1 --tell OMPI_MCA_mtl_base_verbose=1 --tell \
    OMPI_MCA_pml_base_verbose=10 --tell UCX_LOG_LEVEL=info
}

job_command() {
  pass_variables RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME \
    "${!PMIX_@}" "${!PMI_@}" "${!PMI2_@}" "${!OMPI_@}" "${!PRTE_@}" "${!SLURM_@}" "${!MPI_LOCAL@}" \
    "${!HYDI_@}" "${!MPIEXEC_@}"
  container ${passed[@]+"${passed[@]}"} python digits.py --epochs 40
}

# Here is the library.

main "$@"
