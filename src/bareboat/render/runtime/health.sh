# shellcheck shell=bash disable=SC2034,SC2154
# Before the job: measure its nodes, and judge what they give the job.
# Expects: $health_program, $health_paths, $unhealthy_code; limits.sh; on a cluster cluster.sh.

check_health() {
  local log=$BAREBOAT_CONTROL/health.log status found
  : > "$log" || return 0 # a script without a directory for its run
  if declare -F everywhere > /dev/null; then
    has secret || make_secret
    measure_nodes < /dev/null >> "$log" 2>&1
  else
    record_limits
    health_of measure 0 1 - 0 - "${health_paths[@]}" 2>> "$log"
  fi
  status=$?
  found=$(health_of judge 2>> "$log") || status=$?
  [ "$status" -eq 0 ] || found=${found:+$found$'\n'}"the nodes were not measured: $(tail -n 1 "$log")"
  if [ -z "$found" ] || ! has health_required; then
    [ "$status" -eq 0 ] || printf 'bareboat: WARNING: %s\n' "${found##*$'\n'}" >&2
    rm -f "$BAREBOAT_CONTROL"/limits.* # the job's own parts write them
    return 0
  fi
  printf 'bareboat: the job is not started: %s\n' "${found//$'\n'/; }" >&2
  printf '  try: other nodes, or health = "report" to start all the same\n' >&2
  finish "$unhealthy_code"
}

health_of() { # $1: measure or judge, $2…: its arguments after the directory
  local python how=$1
  shift
  python=$(command -v python3) || {
    printf 'python3 is not installed on %s\n' "$BAREBOAT_HOST" >&2
    return 1
  }
  "$python" -I -S -c "$health_program" "$how" "$BAREBOAT_CONTROL" "$@"
}

measure_nodes() { # all at once; and where a program starts the ranks, what it lets each of them use
  everywhere --node "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" health &
  await "$!" || return "$?"
  [ "$start" != program ] || run health
}

health_part() { # of a node, or of a rank
  stop_by exit
  [ "$start$part" = program--node ] || record_limits
  if [ "$part" = --node ]; then
    find_interface
    health_of measure "$BAREBOAT_NODE" "$BAREBOAT_NODES" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" \
      "${BAREBOAT_INTERFACE:--}" "${health_paths[@]}"
  fi
  exit "$?"
}
