# shellcheck shell=bash disable=SC2034,SC2154
# Before the job: measure its nodes, and judge what they give the job.
# Expects: $health_program, $health_paths, $unhealthy_code; limits.sh; on a cluster cluster.sh.

check_health() {
  local log=$BAREBOAT_CONTROL/health.log found=
  : > "$log" || finish 3
  if declare -F everywhere > /dev/null; then
    has secret || make_secret
    measure_nodes < /dev/null >> "$log" 2>&1 || {
      found="the nodes were not measured: $(tail -n 1 "$log")"
      printf 'bareboat: WARNING: %s\n' "$found" >&2
    }
  else
    record_limits
    measure_node 0 1 - 0 -
  fi
  ! has health_required || [ -n "$found" ] || found=$(run_program judge 2>&1)
  if [ -z "$found" ] || ! has health_required; then
    rm -f "$BAREBOAT_CONTROL"/limits.* # the job's own parts write them
    return 0
  fi
  printf 'bareboat: the job is not started: %s\n' "${found//$'\n'/; }" >&2
  printf '  try: other nodes, or health = "report" to start all the same\n' >&2
  finish "$unhealthy_code"
}

measure_nodes() { # all at once; and where a program starts the ranks, what it lets each of them use
  everywhere --node "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" health &
  await "$!" || return "$?"
  [ "$start" != program ] || run health || return "$?"
  all_ended measured "$BAREBOAT_NODES" > /dev/null || { echo 'not all nodes wrote their results' && return 1; }
}

run_program() { # $1: measure or judge, $2…: its arguments after the directory
  local python how=$1
  shift
  python=$(command -v python3) || {
    echo "python3 is not installed on $BAREBOAT_HOST" >&2
    return 1
  }
  "$python" -I -S -c "$health_program" "$how" "$BAREBOAT_CONTROL" "$@"
}

measure_node() { # $@: NODE NODES MASTER PORT INTERFACE
  local said
  said=$(run_program measure "$@" ${health_paths[@]+"${health_paths[@]}"} 2>&1) ||
    printf '%s\n' "${said##*$'\n'}" > "$BAREBOAT_CONTROL/measured.$BAREBOAT_HOST"
  [ -z "$said" ] || printf '%s\n' "$said" >> "$BAREBOAT_CONTROL/health.log"
}

health_part() { # of a node, or of a rank; what fails is written, because the failure of a part would end the job
  stop_by exit
  [ "$start$part" = program--node ] || record_limits
  if [ "$part" = --node ]; then
    find_interface
    measure_node "$BAREBOAT_NODE" "$BAREBOAT_NODES" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "${BAREBOAT_INTERFACE:--}"
  fi
  exit 0
}
