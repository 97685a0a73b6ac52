# shellcheck shell=bash disable=SC2034,SC2154
# Slurm: the nodes, a command on each, and requeueing.
# Expects: $SLURM_JOB_NODELIST, $BAREBOAT_NODES, $BAREBOAT_JOB.

# Expands "c[01-03,07],x9". scontrol, which first reads the site's configuration, is used only for many nodes
# and for other forms of names.
hosts() {
  local rest=$SLURM_JOB_NODELIST prefix range first number found=()
  while [ "$BAREBOAT_NODES" -le 64 ] && [[ $rest =~ ^([^][,]+)(\[([0-9,-]+)\])?(,|$) ]]; do
    rest=${rest:${#BASH_REMATCH[0]}} prefix=${BASH_REMATCH[1]}
    [ -n "${BASH_REMATCH[2]}" ] || found+=("$prefix")
    for range in ${BASH_REMATCH[3]//,/ }; do
      first=${range%-*}
      for ((number = 10#$first; number <= 10#${range#*-}; number++)); do
        printf -v "found[${#found[@]}]" '%s%0*d' "$prefix" "${#first}" "$number"
      done
    done
  done
  if [ -z "$rest" ]; then printf '%s\n' "${found[@]}"; else scontrol show hostnames "$SLURM_JOB_NODELIST"; fi
}

# What describes sbatch's tasks, which are the ranks, or the step in which sbatch was called: srun would apply it
# to a step with one task per node, whose ranks would share one core; so would mpirun, which starts srun.
# srun refuses two of the limits of memory.
begin_scheduler() {
  unset SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_VERBOSE SLURM_TRES_PER_TASK
  # In a step, as in a shell of srun or salloc: what it was started with is not for the next one.
  [ -z "${SLURM_STEP_ID:-}" ] || unset SLURM_DISTRIBUTION SLURM_DIST_PLANESIZE "${!SLURM_MEM_BIND@}" "${!SLURM_STEP_@}"
  [ -z "${SLURM_MEM_PER_NODE:-}" ] || unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU
  [ "$BAREBOAT_NODES" -gt 1 ] || return 0
  # Exported: the script of a study's job starts those of the arms.
  export BAREBOAT_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-${BAREBOAT_CPUS_PER_TASK:-}}
  unset SLURM_CPUS_PER_TASK
}

# One task per node, with all of the job's resources there. --overlap: a signal must get through while the
# job's own step uses everything. --mpi=none: these are not ranks. Programs read the CPUs of a rank from
# SLURM_CPUS_PER_TASK.
on_each_node() {
  local script=$1 how=$2
  shift 2
  set -- bash "$script" "$how" SLURM_NODEID "$@"
  [ -z "$BAREBOAT_CPUS_PER_TASK" ] || set -- env "SLURM_CPUS_PER_TASK=$BAREBOAT_CPUS_PER_TASK" "$@"
  srun --nodes="$BAREBOAT_NODES" --ntasks="$BAREBOAT_NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
    --overlap --mem=0 --mpi=none "$@"
}

# Not SLURM_JOB_ID: for an element of an array that is the ID of the whole array.
again() { scontrol requeue "$BAREBOAT_JOB" && echo "$BAREBOAT_JOB"; }
