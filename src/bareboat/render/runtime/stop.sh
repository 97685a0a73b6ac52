# shellcheck shell=bash disable=SC2034,SC2154
# Signals end the run's processes on this machine or node.
# Expects: processes.sh.

stop() { # $1: exit code
  trap '' TERM INT HUP
  end_run
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP
trap '' QUIT # Ctrl-\ is for the program, which may continue
