# shellcheck shell=bash disable=SC2034,SC2154
# The first node: a program starts the ranks on all nodes.
# Expects: $script, $BAREBOAT_RUN, $BAREBOAT_CONTROL, $BAREBOAT_MASTER, $BAREBOAT_PORT; program, first.sh.

run() { # $1: job or check
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "$1"
  program bash "$script" --rank 0 "$@" &
  await "$!"
}
