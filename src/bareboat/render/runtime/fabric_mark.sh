# shellcheck shell=bash disable=SC2034,SC2154
# Mark ranks that fell back to TCP.
# Expects: $fabric_there; fabric.sh.

fallen() {
  : > "$BAREBOAT_CONTROL/no_fabric"
  printf 'bareboat: WARNING: ranks fell back to TCP although the nodes have %s\n' "$fabric_there" >&2
}

judge_check() {
  [ "$(fabric_way "$BAREBOAT_CONTROL/mpi_check.log")" != sockets ] || fallen
}
