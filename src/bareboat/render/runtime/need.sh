# shellcheck shell=bash disable=SC2034,SC2154
# Check that a file exists.
# Expects: $HERE.

need() { # $1: path, $2: what it is, $3: the remedy
  [ -e "$1" ] && return 0
  printf 'bareboat: %s does not exist%s: %s\n  try: %s\n' "$2" "$HERE" "$1" "$3" >&2
  exit 3
}
