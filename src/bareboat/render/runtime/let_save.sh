# shellcheck shell=bash disable=SC2034,SC2154
# Give the other ranks time to save their state.
# Expects: $BAREBOAT_CONTROL.

let_save() { # $1: files by prefix, $2: their number of lines when all have saved
  # With a limit: some ranks may not save.
  local deadline=$((SECONDS + 60))
  while [ "$SECONDS" -lt "$deadline" ]; do
    [ "$(cat "$BAREBOAT_CONTROL/$1".* 2> /dev/null | wc -l)" -lt "$2" ] || return 0
    sleep 0.2
  done
}
