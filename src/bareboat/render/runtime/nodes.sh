# shellcheck shell=bash disable=SC2034,SC2154
# The first node: run the job's part on every node.
# Expects: $BAREBOAT_RUN, $BAREBOAT_CONTROL, $BAREBOAT_MASTER, $BAREBOAT_PORT; first.sh.

run() { # $1: job
  everywhere --node "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "$1" &
  await "$!"
}
