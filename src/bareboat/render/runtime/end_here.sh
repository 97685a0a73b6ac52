# shellcheck shell=bash
# The end of a script that runs on this machine.
# Expects: $code; processes.sh.

left=
if [ "$code" -eq 0 ]; then
  read -r left 2>/dev/null < "/proc/$$/task/$$/children"
fi
[ "$code" -eq 0 ] && [ -z "$left" ] || end_run # what the command left behind ends with the run
exit "$code"
