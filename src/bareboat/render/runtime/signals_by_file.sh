# shellcheck shell=bash disable=SC2034,SC2154
# Signals for a scheduler that starts only one command on a node.
# Expects: $BAREBOAT_CONTROL; deliver.sh, at_exit.sh.

( # Signals from the first node, through a file: polled every second until the node's part ends.
  told=0 signals=()
  exec 7<> <(:) # no data comes from there: a wait without starting a program every second
  while :; do
    read -r -t 1 -u 7 || [ "$?" -gt 128 ] || sleep 1
    kill -0 "$$" 2> /dev/null || exit
    [ ! -e "$BAREBOAT_CONTROL/signals" ] || mapfile -t signals < "$BAREBOAT_CONTROL/signals"
    while [ "$told" -lt "${#signals[@]}" ]; do
      deliver "${signals[told]}"
      told=$((told + 1))
    done
  done
) < /dev/null > /dev/null 2>&1 &
watch=$!
at_exit "kill $watch"
