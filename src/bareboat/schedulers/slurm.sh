# shellcheck shell=bash disable=SC2034,SC2154
# Slurm: the nodes, a command on each, and back into the queue.
# Expects: $SLURM_JOB_NODELIST, $BAREBOAT_NODES, $BAREBOAT_JOB.

# Of "c[01-03,07],x9" what scontrol makes, which reads the site's configuration before; it is asked for many
# nodes, and for names of another form.
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

# One task for each node, which gets all that the job has there. --overlap: a signal is passed on while the
# job's own step has everything. --mpi=none: these are no ranks.
on_each_node() {
  local script=$1 how=$2
  shift 2
  srun --nodes="$BAREBOAT_NODES" --ntasks="$BAREBOAT_NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
    --overlap --mpi=none bash "$script" "$how" SLURM_NODEID "$@"
}

# Not SLURM_JOB_ID: for an element of an array that is the number of the whole array.
again() { scontrol requeue "$BAREBOAT_JOB" && echo "$BAREBOAT_JOB"; }
