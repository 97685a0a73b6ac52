# shellcheck shell=bash disable=SC2034,SC2154
# What some jobs require besides files.
# Expects: $HERE, $environment_from.

# The exit codes of a shell, for the job's program where it is a file of the host.
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

need_variables() { # those that are passed on by name
  local name
  for name in "${environment_from[@]}"; do
    [ -n "${!name+set}" ] && continue
    printf 'bareboat: the environment variable %s is not set%s\n  try: %s\n' "$name" "$HERE" \
      "export $name; for a script that you submit yourself, also the scheduler's option that passes it on" >&2
    exit 3
  done
}
