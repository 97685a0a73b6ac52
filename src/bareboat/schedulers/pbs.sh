# shellcheck shell=bash disable=SC2034,SC2154
# PBS Professional, Torque, and Slurm with PBS's commands: the nodes, a command on one, and requeueing.
# Expects: $BAREBOAT_JOB, $BAREBOAT_CONTROL, $script.

hosts() {
  if [ -r "${PBS_NODEFILE:-}" ]; then
    awk '!seen[$1]++ { print $1 }' "$PBS_NODEFILE"
  else
    scontrol show hostnames "$SLURM_JOB_NODELIST"
  fi
}

on_host() { # $1: the node; the rest is the command
  local host=$1
  shift
  if [ -n "${SLURM_JOB_ID:-}" ]; then
    srun --nodes=1 --ntasks=1 --nodelist="$host" --overlap --mpi=none "$@"
  elif command -v pbs_tmrsh > /dev/null; then
    pbs_tmrsh "$host" "$@"
  elif command -v pbsdsh > /dev/null; then
    pbsdsh -h "$host" "$@"
  else
    ssh -o BatchMode=yes "$host" "$(printf '%q ' "$@")"
  fi
}

again() { # prints the ID under which the job, or the array's element, continues
  local index=${PBS_ARRAY_INDEX:-${PBS_ARRAYID-}} number
  if [ -n "${SLURM_JOB_ID:-}" ]; then
    scontrol requeue "$SLURM_JOB_ID" && echo "$SLURM_JOB_ID"
  elif qrerun "$BAREBOAT_JOB" 2> /dev/null; then
    echo "$BAREBOAT_JOB"
  else # most sites do not allow users to do this: submit a new job
    set --
    [ -z "$index" ] || set -- -t "$index"
    # Professional accepts no array of one element, except by a step that leaves one.
    [ -z "${PBS_ARRAY_INDEX:-}" ] || set -- -J "$index-$((index + 1)):2"
    number=$(qsub -j oe -o "${BAREBOAT_CONTROL%/*}/output.log" "$@" "$script") &&
      echo "${number/\[\]/[$index]}"
  fi
}
