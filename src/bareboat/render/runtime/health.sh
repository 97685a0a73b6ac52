# shellcheck shell=bash disable=SC2034,SC2154
# Before the job: judge what its nodes give it, and do not start it when something is wrong.
# Expects: $health_program, $unhealthy_code; limits.sh; on a cluster cluster.sh.

check_health() {
  local log=$BAREBOAT_CONTROL/health.log found=
  if declare -F everywhere > /dev/null; then
    record_nodes < /dev/null > "$log" 2>&1 || found="the nodes were not judged: $(tail -n 1 "$log")"
  else
    record_limits
  fi
  [ -n "$found" ] || found=$(judge_nodes 2>&1)
  if [ -z "$found" ]; then
    rm -f "$BAREBOAT_CONTROL"/limits.* # the job's own parts write them
    return 0
  fi
  printf 'bareboat: the job is not started: %s\n' "${found//$'\n'/; }" >&2
  printf '  try: other nodes, or health = "report" to start all the same\n' >&2
  finish "$unhealthy_code"
}

record_nodes() { # what each node gives the job; where a program starts the ranks, what it lets each of them use
  local parts=$BAREBOAT_NODES
  [ "$start" != program ] || parts=$world_size
  run health || return "$?"
  all_ended limits "$parts" > /dev/null || { echo 'not all nodes wrote what they give' && return 1; }
}

judge_nodes() {
  local python
  python=$(command -v python3) || {
    echo "python3 is not installed on $BAREBOAT_HOST" >&2
    return 1
  }
  "$python" -I -S -c "$health_program" "$BAREBOAT_CONTROL"
}

end_health_part() { exit "$1"; }

health_part() { # of a node, or of a rank
  stop_by end_health_part
  record_limits
  exit 0
}
