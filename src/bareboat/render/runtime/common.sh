# shellcheck shell=bash disable=SC2034,SC2154,SC2064,SC2015
# What every script needs: features, requirements, data for engines, the start of a command.
# Expects: $features, a list between spaces; $HERE, $environment_from.

has() { # $1: a feature of this job
  [[ $features == *" $1 "* ]]
}

seldom() { :; } # before functions that most runs do not need, which a library has at its end

at_exit() { # $1: a command for the end of this part, after those added before
  exit_commands=${exit_commands:+$exit_commands; }$1
  trap "$exit_commands" EXIT
}

stop_by() { # $1: the function for a signal that ends this part, given the exit code and the signal
  trap "$1 143 TERM" TERM
  trap "$1 130 INT" INT
  trap "$1 129 HUP" HUP
}

await() { # the exit code of a child, despite any number of signals
  local status
  while :; do
    interrupted=
    wait "$1"
    status=$?
    [ -n "$interrupted" ] || return "$status"
    # If the signal came just when bash had collected the child, bash considers it running, and another `wait`
    # would last until all other children end.
    if ! kill -0 "$1" 2> /dev/null && [[ " $(jobs -rp) " == *[[:space:]]"$1"[[:space:]]* ]]; then
      return "$status"
    fi
  done
}

# A process that signals are left to kill: if this script got one and it lives, only the script got it. Engines that
# stay beside the command, and launchers, need none: the signal waits there.
start_canary() {
  exec {canary}> >(trap - TERM INT HUP QUIT && exec > /dev/null && read -r _)
  pid_of_canary=$!
  [ -z "${BAREBOAT_CONTROL:-}" ] || : > "$BAREBOAT_CONTROL/canary.$BAREBOAT_HOST.$$.$pid_of_canary"
}

end_canary() { # without its file first: a part that stays would look as if a signal had ended its canary
  [ -z "${BAREBOAT_CONTROL:-}" ] || rm -f "$BAREBOAT_CONTROL/canary.$BAREBOAT_HOST.$$.$pid_of_canary"
  exec {canary}>&-
  { kill -KILL "$pid_of_canary" && wait "$pid_of_canary"; } 2> /dev/null
  pid_of_canary=
}

need() { # $1: path, $2: what it is, $3: the remedy
  [ -e "$1" ] && return 0
  printf 'bareboat: %s does not exist%s: %s\n  try: %s\n' "$2" "$HERE" "$1" "$3" >&2
  exit 3
}

need_all() { # what the job requires on this machine or node
  ! has modules || load_modules || exit 3
  requirements
  ! has environment_from || need_variables
}

# Data for an engine through the descriptor $sealed: it fits into an empty pipe and is written at once.
seal() { # $@: words. (A here-string is a pipe, or in bash before 5.1 an unnamed file.)
  exec {sealed}<<< '' && read -r -u "$sealed" _ || exit 3
  printf '%s\0' "$@" >> "/proc/self/fd/$sealed"
}

seal_long() { # the same, written by a child of this shell, not of the command
  exec {sealed}< <(printf '%s\0' "$@" 2> /dev/null)
}

pass_variables() { # $@: environment variables for the command, if they are set; as words in `passed`
  passed=()
  for name; do
    [ -n "${!name+set}" ] || continue
    value=${!name}
    pass_variable
  done
}

# In the background, because bash runs a trap only between commands or during `wait`. It keeps the standard
# input, and the signals that bash ignores in background commands.
start_command() { # $1: job or check
  (
    trap - INT QUIT
    ! has canary || exec {canary}>&-
    unset BAREBOAT_SCRIPT BAREBOAT_STORAGE
    if has output; then
      exec 6>&-
    elif has watchdog; then
      exec >&3 2>&4 3>&- 4>&-
    fi
    ! has names || rank_names
    [ "$1" != check ] || echo "$rank_says"
    "$1_command"
  ) <&0 &
  child=$!
}

run_once() { # the command, once on this node or for this rank. $1: job or check; sets code
  [ -e /dev/fd/0 ] || exec < /dev/null
  if has output; then follow_ranks; elif has watchdog; then keep_output "$silence/$unit"; fi
  ! has sealed || seal_environment
  ! has canary || start_canary
  start_command "$1"
  if [ -n "${beside:-}" ]; then
    "$beside"
  elif has discarded && [ "$1" != check ]; then
    start_keeping
  fi
  ! has sealed || exec {sealed}<&-
  if ! has output && has watchdog; then exec 3>&- 4>&-; fi
  await "$child"
  code=$?
  ! has ends_first || { seldom && await_command; }
  ! has canary || end_canary
  ! has discarded || stop_keeping
  if has output; then followed; elif has watchdog; then output_kept; fi
  ! has watching || stop_watching
}
