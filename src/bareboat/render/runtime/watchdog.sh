# shellcheck shell=bash disable=SC2034,SC2154
# Detect whether the run hangs: no rank prints a line or reports a step for $quiet_limit_s seconds.
# Expects: $quiet_limit_s, $look_s, $units, $unit_ranks, $rank_logs, $unit; processes.sh, at_exit.sh.

set_watch() { silence=$BAREBOAT_CONTROL/watch; }

begin_watchdog() { # before the ranks are started, once
  set_watch
  rm -f "$silence"/{verdict,quiet.*}
  mkdir -p "$silence" "$BAREBOAT_RUN_DIR/progress" || exit 3
}

signs() { # of life: the files with the output and reports of the ranks here, which change
  local rank log
  for ((rank = unit * unit_ranks; rank < (unit + 1) * unit_ranks; rank++)); do
    log=${rank_logs:+$rank_logs/$rank}
    stat -c '%n %s %y' "${log:-$silence/$unit}".{out,err} "$BAREBOAT_RUN_DIR/progress/$rank" 2> /dev/null
  done
}

# By the first unit: the run hangs when all units are quiet, also at the next look: on a shared file system it may
# see late that another one is active again.
judge() {
  local quiet=("$silence"/quiet.*)
  if [ "${#quiet[@]}" -lt "$units" ] || [ ! -e "${quiet[0]}" ]; then
    all_quiet=
  elif [ -n "$all_quiet" ]; then
    : > "$silence/verdict"
  else
    all_quiet=1
  fi
}

watch_over() { # Counts polls, not the clock: a job that its scheduler suspends does not hang.
  local before=none now quiet_s=0 all_quiet=''
  trap 'kill "$!" 2>/dev/null; exit' TERM
  while
    sleep "$look_s" &
    wait "$!"
  do
    kill -0 "$$" 2> /dev/null || return 1
    now=$(signs)
    if [ "$now" != "$before" ]; then
      [ "$quiet_s" -lt "$quiet_limit_s" ] || rm -f "$silence/quiet.$unit"
      before=$now quiet_s=0 all_quiet=''
      continue
    fi
    quiet_s=$((quiet_s + look_s))
    [ "$quiet_s" -ge "$quiet_limit_s" ] || continue
    : > "$silence/quiet.$unit"
    [ "$unit" -ne 0 ] || judge
    [ ! -e "$silence/verdict" ] || break
  done
  end_run
}

start_watchdog() {
  watch_over < /dev/null > /dev/null 2>&1 &
  watchdog=$!
  at_exit "kill $watchdog 2> /dev/null"
}

tell_hang() {
  printf 'bareboat: no rank has printed or reported anything for %s s: the run hangs and is terminated\n' \
    "$quiet_limit_s" >&2
}

keep() { # $1: a file. By complete lines where several ranks become one stream; otherwise as it arrives
  trap '' TERM INT HUP
  if [ -n "$by_lines" ]; then exec sed -u "w $1"; else exec tee "$1"; fi
}

keep_output() { # in $1.out and $1.err, and to the original streams
  exec 3> >(keep "$1.out")
  output=$!
  exec 4> >(keep "$1.err" >&2)
  errors=$!
}

output_kept() { # wait for the last lines, but not for processes that hold the pipe after the rank's end
  local attempt
  for attempt in {1..100}; do
    kill -0 "$output" 2> /dev/null || kill -0 "$errors" 2> /dev/null || break
    sleep 0.01
  done
}
