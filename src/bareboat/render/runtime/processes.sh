# shellcheck shell=bash disable=SC2034,SC2154
# Find the run's processes on this node, and end them.
# Expects: $BAREBOAT_RUN, $BAREBOAT_CONTROL, $BAREBOAT_HOST; $run_apart: what encloses them so that none can
# leave (user, tracer, or none); $BAREBOAT_RUN_DIR, where Bareboat keeps the run.

# A process can lose the mark: by overwriting its environment (setproctitle), or through env -i. So the run's
# processes are those that carry it, those in a container that mounts the run's directory, all descendants of
# them or of this script, and all that share an enclosure with them which a process cannot leave ($run_apart).
# The script's own helpers carry BAREBOAT_SCRIPT=$BAREBOAT_RUN.

found_before='' # processes that end_run found, each with the time when it began: their parents may have ended since

carriers() { # $1: a variable with its value, as in processes' initial environment
  grep -lszxF "$1" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

contained_pids() { # the processes in the run's containers, of which each has a user namespace
  local pid at mounts=() part=${BAREBOAT_RUN_DIR:-}
  part=${part#"${part%/runs/*}"}
  [ "$run_apart" = user ] && [ -n "$part" ] || return 0
  for at in /proc/[0-9]*; do # most are in this script's namespace
    [ ! -O "$at" ] || [ "$at/ns/user" -ef /proc/self/ns/user ] || mounts+=("$at/mountinfo")
  done
  [ "${#mounts[@]}" -gt 0 ] || return 0
  grep -HsF "$part " "${mounts[@]}" | while read -r pid _ _ _ at _; do
    pid=${pid#/proc/} pid=${pid%%/*}
    printf -v at %b "$at" # a blank is \040 there
    [ ! "/proc/$pid/root$at" -ef "$BAREBOAT_RUN_DIR" ] || echo "$pid"
  done
}

is_script() { # $1: a process; whether it is this script, a copy of it, or its part for a node or a rank
  local word words=
  [ "/proc/$1/exe" -ef "/proc/$$/exe" ] || return 1
  while IFS= read -r -d '' word; do
    [ "$word" != "$BAREBOAT_RUN" ] || return 0
    words+=$word$'\n'
  done < "/proc/$1/cmdline"
  [ "$words" = "$own_words" ] && is_below "$1"
}

is_below() { # $1: a process; whether it is this script or below it: another job's may have the same command line
  local pid=$1 fields
  while [ "$pid" -ne "$$" ]; do
    [ "$pid" -gt 1 ] && read -r fields < "/proc/$pid/stat" || return 1
    # shellcheck disable=SC2206
    fields=(${fields##*) })
    pid=${fields[1]}
  done
}

find_run() { # the run's processes on this node: sets ours and births, of all processes
  local pid line fields word own_words='' more=1 own_session own_apart
  local -A parent=() session=() apart=() script=() sessions=() together=()
  {
    for line in /proc/[0-9]*/stat; do
      read -r line < "$line" || continue
      pid=${line%% *}
      # shellcheck disable=SC2206
      fields=(${line##*) })
      [ "${fields[0]}" = Z ] || parent[$pid]=${fields[1]} session[$pid]=${fields[3]} births[$pid]=${fields[19]}
    done
    case $run_apart in
      user) while read -r word line; do line=${line#/proc/} apart[${line%%/*}]=$word; done \
        < <(stat -L -c '%i %n' /proc/[0-9]*/ns/user) ;;
      tracer) while IFS=$'/:\t' read -r _ _ pid _ _ _ word; do [ "$word" = 0 ] || apart[$pid]=$word; done \
        < <(grep -s '^TracerPid:' /proc/[0-9]*/status /dev/null) ;;
    esac
    while IFS= read -r -d '' word; do own_words+=$word$'\n'; done < "/proc/$$/cmdline"
    own_session=${session[$$]:-} own_apart=${apart[$$]:-}
    # In this order: a copy of this script that becomes a helper meanwhile is seen as one or the other.
    for pid in "${!parent[@]}"; do ! is_script "$pid" || script[$pid]=1; done
    for pid in $(carriers "BAREBOAT_SCRIPT=$BAREBOAT_RUN"); do script[$pid]=1; done
    for pid in $(marked_pids) $(contained_pids); do ours[$pid]=1; done
    for word in $found_before; do
      [ "${births[${word%/*}]:-}" != "${word#*/}" ] || ours[${word%/*}]=1
    done
    while [ -n "$more" ]; do
      more=
      for pid in "${!ours[@]}"; do
        [ "$run_apart" != user ] || [ -z "$own_apart" ] || [ "${apart[$pid]:-$own_apart}" = "$own_apart" ] ||
          together[${apart[$pid]}]=1
        [ "$run_apart" != tracer ] || together[$pid]=1
        # Only if it began the session: then all processes in it are its descendants.
        [ "${session[$pid]:-}" != "$pid" ] || [ "$pid" = "$own_session" ] || sessions[$pid]=1
      done
      for pid in "${!parent[@]}"; do
        [ -z "${ours[$pid]:-}${script[$pid]:-}" ] || continue
        line=${parent[$pid]}
        if [ -n "${ours[$line]:-}${script[$line]:-}${sessions[${session[$pid]}]:-}" ] ||
          [ -n "${together[${apart[$pid]:-none}]:-}" ]; then
          ours[$pid]=1 more=1
        fi
      done
    done
  } 2> /dev/null
}

run_pids() {
  local -A births=() ours=()
  find_run
  [ "${#ours[@]}" -eq 0 ] || printf '%s\n' "${!ours[@]}"
}

gone() { # $1: a command that lists processes, $2: tenths of a second to wait until there are none
  local tenths
  for ((tenths = 0; tenths < $2; tenths++)); do
    [ -n "$("$1")" ] || return 0
    sleep 0.1
  done
  return 1
}

end_run() { # SIGTERM to the processes, wait up to 10 s, then SIGKILL
  local pid
  local -A births=() ours=()
  find_run
  for pid in "${!ours[@]}"; do
    [ -z "${births[$pid]:-}" ] || found_before+=" $pid/${births[$pid]}"
  done
  # Processes with the mark first: their starters (mpirun, an engine) would kill them at once.
  signal_to TERM marked_pids
  if gone marked_pids 100; then
    gone run_pids 10 && return 0
    signal_to TERM run_pids
    gone run_pids 20 && return 0
  fi
  kill_run
}

kill_run() { # more than once: a process may start another while it is killed
  for _ in 1 2 3 4 5; do
    signal_to KILL run_pids
    ! gone run_pids 20 || break
  done
}

# A signal for the run comes to this script. A scheduler or a terminal sends it to the command too: then it waits for
# what stays beside the command, or it has killed the canary. Others signal the script only, which passes it on.
pass_once() { # $1: a signal for the run's processes on this node, which another part may have passed on
  local pids tries
  if [ -n "${BAREBOAT_CONTROL:-}" ]; then
    (set -C && : > "$BAREBOAT_CONTROL/passed.$BAREBOAT_HOST.$1") 2> /dev/null || return 0
    # For what keeps exit codes in containers, which may have put a link there: a directory follows none.
    [ ! -d "${BAREBOAT_RUN_DIR:-}" ] || mkdir "$BAREBOAT_RUN_DIR/stopping" 2> /dev/null
  fi
  for tries in 1 2 3 4 5; do # some get it a little later
    pids=$(unreached_pids "$(kill -l "$1")")
    [ -n "$pids" ] || return 0
    sleep 0.1
  done
  # shellcheck disable=SC2086
  kill -s "$1" $pids 2> /dev/null
}

unreached_pids() { # $1: the number of a signal; the run's processes for which nothing shows that they got it
  local pid part canary fields own_words='' reached_group=''
  for canary in "${pid_of_canary:+/$$.$pid_of_canary}" "${BAREBOAT_CONTROL:-/none}/canary.$BAREBOAT_HOST".*; do
    pid=${canary##*.} part=${canary%.*}
    ! { [[ ${pid:-x} == *[!0-9]* ]] || kill -0 "$pid" || ! kill -0 "${part##*[./]}"; } 2> /dev/null || continue
    [ -n "${by_group:-}" ] && read -r part < "/proc/$$/stat" || return 0
    # shellcheck disable=SC2206
    fields=(${part##*) })
    reached_group=${fields[2]}
  done
  for pid in $(marked_pids); do
    is_reached "$pid" "$1" 2> /dev/null || echo "$pid"
  done
}

is_reached() { # $1: a process, $2: the number of a signal; whether it waits for one above it, up to this script's
  local pid=$1 group='' name value fields parent waits
  while [ "$pid" -gt 1 ] && ! is_script "$pid"; do
    read -r value < "/proc/$pid/stat" || return 1
    # shellcheck disable=SC2206
    fields=(${value##*) })
    # A launcher gives its ranks groups of their own, and a terminal signals one group.
    [ -z "${by_group:-}" ] || [ "${group:=${fields[2]}}" = "${fields[2]}" ] || return 1
    [ "${fields[2]}" != "${reached_group:-}" ] || return 0
    parent=${fields[1]} waits=0
    while read -r name value; do [ "$name" != ShdPnd: ] || waits=$value; done < "/proc/$pid/status"
    (((0x$waits >> ($2 - 1)) & 1)) && return 0
    pid=$parent
  done
  return 1
}

await_command() { # after its engine, which ends by a signal with any exit code: the command may still save
  is_stopping && [ -n "$(marked_pids)" ] || return 0
  gone marked_pids 600
  [ "$code" -ne 0 ] || code=143
}

is_stopping() { # whether the run's processes here got a signal to end: they may save, each in its time
  local files=("${BAREBOAT_CONTROL:-/none}/passed.$BAREBOAT_HOST".*)
  [ -e "${files[0]}" ]
}

others_here() { # whether other parts of the job run on this host, by the files of limits.sh
  local file
  for file in "$BAREBOAT_CONTROL/limits.$BAREBOAT_HOST".*; do
    [ "${file##*.}" = "$$" ] || ! kill -0 "${file##*.}" 2> /dev/null || return 0
  done
  return 1
}

end_left() { # after a success: processes that outlived what started them, such as daemons
  grep -qszxF "BAREBOAT_RUN=$BAREBOAT_RUN" /proc/[0-9]*/environ || [ -n "$(contained_pids)" ] || return 0
  end_run
}

marked_pids() {
  carriers "BAREBOAT_RUN=$BAREBOAT_RUN"
}

signal_to() { # $1: the signal, $2: a command that lists processes
  local pids
  pids=$("$2")
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -s "$1" $pids 2> /dev/null
}
