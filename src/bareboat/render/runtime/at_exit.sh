# shellcheck shell=bash disable=SC2034,SC2154,SC2064
# Commands at the end of a part of the script. A further way's script, sourced by the previous one, adds to
# them.
# Expects: nothing.

declare -F at_exit > /dev/null || exit_commands=
at_exit() { # $1: a command for the end of this part, after those added before
  exit_commands=${exit_commands:+$exit_commands; }$1
  trap "$exit_commands" EXIT
}
