# shellcheck shell=bash disable=SC2034,SC2154,SC2015
# A job on this machine, now.
# Expects: $start, $rung, $run_name, $BAREBOAT_CONTROL and $BAREBOAT_RUN_DIR where Bareboat keeps the run.

by_group=1 # a terminal signals a process group

# The command gets the signal once and has ten seconds; its exit code is the run's.
stop() { # $1: exit code before there is a command, $2: the signal
  local tenths
  interrupted=1
  [[ $stopped != *"$2"* ]] || return 0
  stopped+=" $2" stop_code=$1
  seldom
  if [ -z "$child" ]; then
    end_run
    exit "$1"
  fi
  pass_once "$2"
  for ((tenths = 0; tenths < 100; tenths++)); do
    # Any of the ranks, of which run_ranks waits for one.
    kill -s URG "${children[@]:-$child}" 2> /dev/null || return 0
    sleep 0.1
  done
  kill_run
  [ -z "${pid_of_canary:-}" ] || end_canary
  exit "$1"
}

start_ranks() { # without a program
  ! has sweep || set_sweep_values
  if has output || has watchdog; then
    set_run_directory
    set_rank_logs
    make_rank_logs
  fi
  ! has watching || begin_watching
  if [ "$start" = ranks ]; then find_port; fi
  ! has secret || make_secret
  ! has watching || start_watching
  [ -z "${BAREBOAT_CONTROL:-}" ] || ! has health || check_health
  ! has kernel_cache || use_kernels
  if [ "$start" = ranks ]; then
    [ -z "${BAREBOAT_CONTROL:-}" ] || record_limits
    run_ranks
  else
    run_once job
  fi
}

# Whether a process that began after this script may be there: the kernel's numbers of processes rise until they
# start again at the lowest, which a short run does not see.
may_be_left() {
  local last pid
  read -r _ _ _ _ last < /proc/loadavg
  if [ "$SECONDS" -gt 1 ] || [ "$((last - $$))" -lt 0 ] || [ "$((last - $$))" -gt 500 ]; then return 0; fi
  for ((pid = $$ + 1; pid <= last; pid++)); do
    [ ! -O "/proc/$pid" ] || return 0
  done
  return 1
}

main() { # $1: the run's mark; or --rank RUN CONTROL RUN_DIR PORT WHAT, from the program that starts the ranks
  local left='' supervised=${BAREBOAT_CONTROL:-}
  part=--first what=job child='' stopped='' beside='' world_watch='' HERE=
  BAREBOAT_RUN=${1:-$run_name-$$}
  if [ "$start" = program ] && [ "$BAREBOAT_RUN" = --rank ]; then
    part=$1 BAREBOAT_RUN=$2 BAREBOAT_CONTROL=$3 BAREBOAT_RUN_DIR=$4 BAREBOAT_PORT=$5 what=$6
  fi
  [ "$rung" -gt 1 ] && [ "$part" = --first ] || exit_commands=
  export BAREBOAT_SCRIPT=$BAREBOAT_RUN
  stop_by stop
  # One command may handle Ctrl-C and end with its own exit code; Bareboat ends it if it does not end. (bash may
  # lose the status of a child that ends as it interrupts `wait` for a trap.)
  [ "$start" != nodes ] || [ -z "$supervised" ] || has output || [ "$world_size" -gt 1 ] || has ends_first || trap '' INT
  trap '' QUIT # Ctrl-\ is for the program, which may continue
  need_all
  BAREBOAT_NODE=0
  if [ "$start" != nodes ]; then
    BAREBOAT_MASTER=127.0.0.1 BAREBOAT_INTERFACE=lo BAREBOAT_JOB=$$
  fi
  read -r BAREBOAT_HOST < /proc/sys/kernel/hostname # the output of uname -n, without starting a program
  if [ "$part" = --rank ]; then
    set_rank_logs
    ! has sweep || set_sweep_values
    ! has watching || start_watching
    [ "$what" = check ] || record_limits
    ! has kernel_cache || use_kernels
    run_rank
  fi
  # Beside the command; Bareboat itself starts what counts discarded files.
  [ "$start" != nodes ] || [ -z "$supervised" ] || beside=record_limits
  if [ "$start" = program ]; then start_program "$@"; else start_ranks; fi
  ! has watching || end_watching
  if [ "$start" = program ] || has output; then find_first_failure; fi
  ! has discarded || [ -z "${BAREBOAT_CONTROL:-}" ] || [ -n "$beside" ] || report_discarded
  if [ "$code" -eq 0 ]; then
    read -r left 2> /dev/null < "/proc/$$/task/$$/children"
  fi
  # Processes that the command left behind end with the run. Under Bareboat they are children of this script.
  if [ "$code" -ne 0 ] || [ -n "$left" ]; then
    seldom && end_run
  elif [ -z "$supervised" ] && may_be_left; then
    seldom && end_left
  fi
  exit "$code"
}
