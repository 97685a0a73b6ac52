# shellcheck shell=bash disable=SC2034,SC2154
# A short job may end before the watcher's next poll.
# Expects: $fabric_words, $fabric_watch; fabric_mark.sh.

kill "$fabric_watch" 2> /dev/null
[ -e "$BAREBOAT_CONTROL/no_fabric" ] || [ "$(fabric_way "${fabric_words[@]}")" != sockets ] || fallen
