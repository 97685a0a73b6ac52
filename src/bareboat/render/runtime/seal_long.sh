# shellcheck shell=bash disable=SC2034,SC2154
# Data for an engine through the descriptor $sealed: written by a child of this shell, not of the command.
# Expects: nothing.

seal() { # $@: words
  exec {sealed}< <(printf '%s\0' "$@" 2> /dev/null)
}
