# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# Flux: the nodes, a command on each, and requeueing.
# Expects: $BAREBOAT_NODES, $BAREBOAT_CONTROL, $script; common.sh, and environment.sh where the job has values.

hosts() { flux hostlist --expand --delimiter='\n' local; }

# By itself, Flux ends a job whose parts end some seconds apart, and kills the other parts of one that fails. So a
# part that fails ends the others ($0: the file with signals).
flux_part='trap : TERM INT HUP; "$@" || { status=$?; echo END >> "$0"; exit "$status"; }'

on_each_node() {
  local script=$1 how=$2
  shift 2
  without_values flux run --nodes="$BAREBOAT_NODES" --ntasks="$BAREBOAT_NODES" --exclusive --quiet \
    -o exit-timeout=none \
    bash -c "$flux_part" "$BAREBOAT_CONTROL/signals" bash "$script" "$how" FLUX_TASK_RANK "$@"
}

# Flux keeps a command's environment as JSON, which has no bytes that are not UTF-8. Each part reads the values of
# environment_from itself.
without_values() { # $@: a command
  local names=()
  ! has environment_from || mapfile -t names < <(environment_names)
  env "${names[@]/#/--unset=}" "$@"
}

# The job is a Flux of its own, which ends with it: its parent queues the job again.
again() { # $@: the script's own arguments; a point of a sweep is a job of its own, and they identify it
  without_values flux --parent batch --output="${BAREBOAT_CONTROL%/*}/scheduler.log" "$script" "$@"
}

# Flux starts a job that has lost a node no second time. If it is not the first one, the job runs on. The nodes of
# a job that is cancelled, or at its time limit, leave one after another, and it is no longer in the state RUN.
find_lost() {
  [ "$(flux --parent jobs --no-header --format='{state}' "$BAREBOAT_JOB" 2> /dev/null)" = RUN ] || return 0
  flux hostlist --expand --delimiter='\n' --minus instance avail | grep . > "$BAREBOAT_CONTROL/lost"
}

on_host() { # $1: the node; the rest is the command
  local rank
  rank=$(flux hostlist --find="$1" instance) || return 1
  shift
  without_values flux exec --quiet --noinput --rank="$rank" "$@"
}

pass_on() { echo "$1" >> "$BAREBOAT_CONTROL/signals"; }
