# shellcheck shell=bash disable=SC2034,SC2154
# A short job may end before the watcher's next poll.
# Expects: $fabric_words, $fabric_watch, $code; fabric_require.sh.

kill "$fabric_watch" 2> /dev/null
[ "$code" -ne 0 ] || [ "$(fabric_way "${fabric_words[@]}")" != sockets ] || fallen 'used TCP sockets'
[ ! -e "$BAREBOAT_CONTROL/no_fabric" ] || finish 3
