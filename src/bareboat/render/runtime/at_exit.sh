# shellcheck shell=bash disable=SC2034,SC2154,SC2064
# What a part of the script does when it ends. A further way's script, read by the one before, adds to it.
# Expects: nothing.

declare -F at_exit > /dev/null || exit_commands=
at_exit() { # $1: a command for the end of this part, after those that were given before
  exit_commands=${exit_commands:+$exit_commands; }$1
  trap "$exit_commands" EXIT
}
