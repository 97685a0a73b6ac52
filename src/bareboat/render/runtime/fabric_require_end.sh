# shellcheck shell=bash disable=SC2034,SC2154
# A short job may be over before the watcher's next look.
# Expects: $fabric_words, $fabric_watch, $code; fabric_require.sh.

kill "$fabric_watch" 2> /dev/null
[ "$code" -ne 0 ] || [ "$(fabric_way "${fabric_words[@]}")" != sockets ] || fallen 'spoke by sockets'
[ ! -e "$BAREBOAT_CONTROL/no_fabric" ] || finish 3
