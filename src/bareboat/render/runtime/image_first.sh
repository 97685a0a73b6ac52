# shellcheck shell=bash disable=SC2034,SC2154
# The first node: the image to every node, and away again.
# Expects: $BAREBOAT_RUN, $BAREBOAT_CONTROL; first.sh, at_exit.sh.

# The image: to every node, and away again.
leave_images() { # $1: how often to try; also because steps that are not cleared away keep others out
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
