# shellcheck shell=bash disable=SC2034,SC2154
# End the job if its ranks fell back to TCP.
# Expects: $fabric_there; fabric.sh, first.sh.

fallen() { # $1: the reason before the job starts; without it the job is running, and ends
  : > "$BAREBOAT_CONTROL/no_fabric"
  printf 'bareboat: the ranks %s, but the job requires a fabric; the nodes have %s\n' \
    "${1:-fell back to TCP}" "$fabric_there" >&2
  printf '  try: bareboat plan JOB   # what keeps them from it; or fabric = "mark"\n' >&2
  [ -n "${1:-}" ] || pass_on TERM
}

judge_check() {
  case $(fabric_way "$BAREBOAT_CONTROL/mpi_check.log") in
    fabric) return 0 ;;
    sockets) fallen 'fell back to TCP' ;;
    *) fallen 'do not report their transport' ;;
  esac
  finish 3
}
