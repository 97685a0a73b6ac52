# shellcheck shell=bash
# Give the other ranks time to save their state.
# Expects: $BAREBOAT_CONTROL.

let_save() { # $1: files by the beginning of their names, $2: how many lines they have when all have saved
  local deadline=$((SECONDS + 60)) # for those that were not told
  while [ "$SECONDS" -lt "$deadline" ]; do
    [ "$(cat "$BAREBOAT_CONTROL/$1".* 2>/dev/null | wc -l)" -lt "$2" ] || return
    sleep 0.2
  done
}
