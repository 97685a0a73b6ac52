# shellcheck shell=bash disable=SC2034,SC2154
# On this machine a program (mpirun) starts the ranks.
# Expects: $BAREBOAT_CONTROL, $BAREBOAT_RUN_DIR, $BAREBOAT_PORT; program, processes.sh.

finish() {
  exit "$1"
}

stop() { # $1: exit code; the ranks first, so that they have time to end
  trap '' TERM INT HUP
  end_run
  kill -s TERM "$child" 2> /dev/null
  exit "$1"
}
child=

script=$0
if [ ! -f "$script" ]; then # run as bash -c "…"
  script=$BAREBOAT_CONTROL/job.sh
  (umask 077 && printf '%s\n' "$BASH_EXECUTION_STRING" > "$script") || exit 3
fi
[ -e /dev/fd/0 ] || exec < /dev/null

run() { # $1: job or check
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_RUN_DIR" "$BAREBOAT_PORT" "$1"
  program bash "$script" --rank "$@" <&0 &
  child=$!
  wait "$child"
}
