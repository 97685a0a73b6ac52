# shellcheck shell=bash disable=SC2034,SC2154
# The end of a script that runs on this machine.
# Expects: $code; processes.sh.

left=
if [ "$code" -eq 0 ]; then
  read -r left 2> /dev/null < "/proc/$$/task/$$/children"
fi
# Processes that the command left behind end with the run.
if [ "$code" -ne 0 ] || [ -n "$left" ]; then end_run; fi
exit "$code"
