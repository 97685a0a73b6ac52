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

# A job's PATH has PBS's commands only where the site's login scripts add them.
begin_scheduler() {
  local conf=${PBS_CONF_FILE:-/etc/pbs.conf} line
  command -v qsub > /dev/null || [ ! -r "$conf" ] || while IFS= read -r line; do
    [[ $line != PBS_EXEC=* ]] || PATH+=:${line#*=}/bin
  done < "$conf"
}

on_host() { # $1: the node; the rest is the command
  local host=$1
  shift
  if [ -n "${SLURM_JOB_ID:-}" ]; then
    srun --nodes=1 --ntasks=1 --nodelist="$host" --overlap --mpi=none "$@"
  elif command -v pbs_tmrsh > /dev/null; then
    as_task pbs_tmrsh "$host" -- "$@"
  elif command -v pbsdsh > /dev/null; then
    as_task pbsdsh -h "$host" -- "$@"
  else
    ssh -o BatchMode=yes "$host" "$(printf '%q ' "$@")"
  fi
}

nodes_down() { # of these nodes, those that do not answer the server
  [ -z "${SLURM_JOB_ID:-}" ] || return 0
  timeout 20 pbsnodes "$@" | awk '/^[^ \t]/ { node = $1 } $1 == "state" && /[=,] *down/ { print node }'
}

# PBS keeps the output of a task on another node until the job's end, for its own file. The task of a run writes
# it to a file, which is copied to the log as it grows.
as_task() { # $@: the words that start a task on a node, --, and its command
  local starter=() file task status said line position=0
  while [ "$1" != -- ]; do
    starter+=("$1")
    shift
  done
  shift
  if [ -z "${BAREBOAT_CONTROL:-}" ]; then # what a launcher started there sends the output of ranks itself
    "${starter[@]}" "$@"
    return "$?"
  fi
  file=$BAREBOAT_CONTROL/said.$BASHPID
  : > "$file" && exec {said}< "$file" || return 3
  # shellcheck disable=SC2016
  "${starter[@]}" bash -c 'exec >> "$0" 2>&1 && exec "$@"' "$file" "$@" &
  task=$!
  tail -c +1 -f -s 0.5 --pid="$task" <&"$said"
  wait "$task"
  status=$?
  # A network file system shows all of it to those who open it now.
  while read -r line; do [[ $line != pos:* ]] || position=${line#*:}; done < "/proc/$BASHPID/fdinfo/$said"
  tail -c "+$((position + 1))" "$file"
  exec {said}<&-
  rm -f "$file"
  return "$status"
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
    # Relative: OpenPBS refuses a path that is not ASCII.
    number=$(cd "${BAREBOAT_CONTROL%/*}" && qsub -j oe -o scheduler.log "$@" "$script") &&
      echo "${number/\[\]/[$index]}"
  fi
}
