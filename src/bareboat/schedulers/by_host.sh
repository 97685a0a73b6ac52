# shellcheck shell=bash disable=SC2034,SC2154
# A command on every node, where nodes are reached one by one.
# Expects: $hosts, $features; on_host of the scheduler.

on_each_node() {
  local script=$1 how=$2 number code=0 status children=()
  shift 2
  for number in "${!hosts[@]}"; do
    (
      exec < /dev/null
      if [ "$number" -eq 0 ]; then
        bash "$script" "$how" 0 "$@"
      else
        ! has hand_on || exec < <(hand_on)
        on_host "${hosts[number]}" bash "$script" "$how" "$number" "$@"
      fi
      status=$?
      [ "$status" -eq 0 ] || pass_on TERM # otherwise the others would wait for this node forever
      exit "$status"
    ) &
    children+=("$!")
  done
  for number in "${children[@]}"; do
    wait "$number" || {
      status=$?
      [ "$code" -ne 0 ] || code=$status
    }
  done
  return "$code"
}

pass_on() { echo "$1" >> "$BAREBOAT_CONTROL/signals"; }
