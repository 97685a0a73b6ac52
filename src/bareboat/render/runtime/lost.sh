# shellcheck shell=bash disable=SC2034,SC2154
# The first node: do not restart a job forever that loses its nodes.
# Expects: $starts, $BAREBOAT_CONTROL; first.sh.

agains=()
[ ! -e "$BAREBOAT_CONTROL/agains" ] || mapfile -t agains < "$BAREBOAT_CONTROL/agains"
if [ "$((starts - ${#agains[@]}))" -gt 2 ]; then
  printf 'bareboat: this job lost its nodes twice; it is not started a third time\n' >&2
  finish 70
fi
