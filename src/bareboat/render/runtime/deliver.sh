# shellcheck shell=bash disable=SC2034,SC2154
# Send a signal to the run's processes on this node.
# Expects: processes.sh.

deliver() { # $1: a signal for the run's processes on this node
  local pid caught
  if [ "$1" = TERM ]; then
    end_run
    return "$?"
  fi
  # A process without a handler would die of it.
  for pid in $(run_pids); do
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)
    (((0x${caught:-0} >> ($(kill -l "$1") - 1)) & 1)) && kill -s "$1" "$pid"
  done
}
