# shellcheck shell=bash disable=SC2034,SC2154
# A study's allocation: the nodes must see its directory, and it must be the newest.
# Expects: the script's arguments; $study, $allocation.

[ "${1:-}" != --here ] || exit 0 # this node answers
[ -e "$study/study.json" ] || {
  printf 'bareboat: %s does not see the directory of the study: %s\n' "$HOSTNAME" "$study" >&2
  printf '  try: --store DIR on a file system that all nodes share\n' >&2
  exit 3
}

is_newest() { # whether no newer job was submitted for these runs
  local newest
  read -r newest < "$study/control/allocation" && [ "$newest" = "$allocation" ] && return 0
  printf 'bareboat: another job was submitted for these runs; this one ends\n' >&2
  return 1
}
is_newest || exit 0
