"""Bash for schedulers whose nodes are reached one by one, by their names.

A scheduler gives `on_host HOST WORD…`, which runs a command on one node. Signals for the ranks do not go that
way: a second command on a node may want a slot that the first one has, and one to a dead node may hang for
ever. They are written into a file of the run's folder, into which every node's part looks once a second.
"""

from __future__ import annotations

#: What a command on another node reads.
NOTHING = "< /dev/null"

PASS_ON = """\
pass_on() { echo "$1" >> "$BAREBOAT_CONTROL/signals"; }
"""

ON_EACH_NODE = (
    """\
on_each_node() {
  local script=$1 how=$2 number code=0 children=()
  shift 2
  for number in "${!hosts[@]}"; do
    (
      if [ "$number" -eq 0 ]; then
        bash "$script" "$how" 0 "$@"
      else
        on_host "${hosts[number]}" bash "$script" "$how" "$number" "$@" < /dev/null
      fi
      code=$?
      [ "$code" -eq 0 ] || pass_on TERM # the others would wait for this node for ever
      exit "$code"
    ) &
    children+=("$!")
  done
  for number in "${children[@]}"; do
    wait "$number" || { status=$?; [ "$code" -ne 0 ] || code=$status; }
  done
  return "$code"
}

"""
    + PASS_ON
)
