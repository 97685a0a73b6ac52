# shellcheck shell=bash disable=SC2034,SC2154
# A job on this machine that keeps its ranks' output, is watched, or whose ranks a program starts.
# Expects: $BAREBOAT_CONTROL and $BAREBOAT_RUN_DIR where Bareboat keeps the run; local.sh.

# The run's files: this script writes to BAREBOAT_CONTROL, which no container sees; the ranks to
# BAREBOAT_RUN_DIR.
set_run_directory() {
  if [ -z "${BAREBOAT_CONTROL:-}" ]; then
    BAREBOAT_CONTROL=$(mktemp -d "$(temporary_directory)/bareboat-run.XXXXXX") || exit 3
    at_exit remove_run_directory
    BAREBOAT_RUN_DIR=$BAREBOAT_CONTROL/ranks
    mkdir "$BAREBOAT_RUN_DIR" || exit 3
  fi
  export -n BAREBOAT_CONTROL
}

remove_run_directory() { rm -rf "$BAREBOAT_CONTROL"; }

finish() {
  exit "$1"
}

end_hung() {
  end_run
  tell_hang
  exit "$hung_code"
}

# The run's processes authenticate each other with it. Not exported: only processes of the launcher get it.
make_secret() {
  unset BAREBOAT_SECRET
  BAREBOAT_SECRET=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
}

run() { # $1: job or check; the program that starts the ranks
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_RUN_DIR" "$BAREBOAT_PORT" "$1"
  program bash "$script" --rank "$@" <&0 &
  child=$!
  await "$child"
  code=$? child=
  [ -z "$stopped" ] || [ "${!#}" = job ] || finish "$stop_code"
  return "$code"
}

start_program() { # $@: the script's arguments
  set_run_directory
  set_rank_logs
  ! has watching || begin_watching
  find_port
  if [ "$rung" -gt 1 ]; then
    printf 'bareboat: the ranks are started by %s\n' "$launch" >&2
  elif [ -f "$0" ]; then
    script=$0
  else # run as bash -c "..."
    script=$BAREBOAT_CONTROL/job.sh
    (umask 077 && printf '%s\n' "$BASH_EXECUTION_STRING" > "$script") || exit 3
  fi
  [ -e /dev/fd/0 ] || exec < /dev/null
  if [ "$rung" -eq 1 ] && has health; then check_health; fi
  ! has mpi_check || check_ranks "$@"
  run job
  code=$?
}
