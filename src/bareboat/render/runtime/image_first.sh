# shellcheck shell=bash disable=SC2034,SC2154
# The first node: copy the image to every node, and remove it afterwards.
# Expects: $BAREBOAT_RUN, $BAREBOAT_CONTROL; first.sh, at_exit.sh.

leave_images() { # $1: number of attempts; also because steps that are not cleaned up block others
  local attempt
  [ -z "$left" ] && [ ! -e "$BAREBOAT_CONTROL/keep_image" ] || return 1
  left=1
  for ((attempt = 1; attempt <= $1; attempt++)); do
    everywhere --leave "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$1" 2> "$BAREBOAT_CONTROL/leaving.log" && return 0
    sleep 1
  done
}
left=
at_exit 'leave_images 1'
everywhere --bring "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" &
await "$!" || finish 3
