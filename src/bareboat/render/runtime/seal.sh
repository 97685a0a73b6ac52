# shellcheck shell=bash disable=SC2034,SC2154,SC2015
# What an engine reads from the descriptor $sealed: little enough for an empty pipe, and in it at once.
# Expects: nothing.

seal() { # $@: words. (A here-string is a pipe, or in bash before 5.1 a file without a name.)
  exec {sealed}<<< '' && read -r -u "$sealed" _ || exit 3
  printf '%s\0' "$@" >> "/proc/self/fd/$sealed"
}
