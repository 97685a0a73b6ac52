# shellcheck shell=bash disable=SC2034,SC2154
# Check the job's program where it is a file of the host: the exit codes of a shell.
# Expects: $HERE.

# $1: the program as in the job, $2: its path, $3: command that makes it executable, $4: command that finds it
need_program() {
  [ ! -x "$2" ] || return 0
  if [ -e "$2" ]; then
    printf 'bareboat: %s is not executable%s: %s\n  try: %s\n' "$1" "$HERE" "$2" "$3" >&2
    exit 126
  fi
  printf 'bareboat: %s is missing%s: there is no file %s\n  try: %s\n' "$1" "$HERE" "$2" "$4" >&2
  exit 127
}
