# shellcheck shell=bash disable=SC2034,SC2154,SC2015
# Data for an engine through the descriptor $sealed: it fits into an empty pipe and is written at once.
# Expects: nothing.

seal() { # $@: words. (A here-string is a pipe, or in bash before 5.1 an unnamed file.)
  exec {sealed}<<< '' && read -r -u "$sealed" _ || exit 3
  printf '%s\0' "$@" >> "/proc/self/fd/$sealed"
}
