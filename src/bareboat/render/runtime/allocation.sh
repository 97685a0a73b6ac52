# shellcheck shell=bash disable=SC2034,SC2154,SC2153,SC2317
# A study's allocation: its runs, one after another, each with all arms on the same nodes.
# Expects: $study, $allocation, $schedule, $time_limit_s, $metric_files, $BAREBOAT_RUN, $BAREBOAT_CONTROL,
#   $BAREBOAT_NODES, $BAREBOAT_JOB; begin.sh; hosts and on_each_node of the scheduler.

# $1: nothing, or --here on a node that is asked whether it answers.
main() {
  [ "${1:-}" != --here ] || exit 0
  need_study
  is_newest || exit 0
  keep_log
  read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
  begin_run
  read_environment # for the arms
  # A run is complete when its directory has its number: by one rename, after its last arm.
  complete=$BAREBOAT_CONTROL/runs work=$BAREBOAT_CONTROL/work.$BAREBOAT_JOB.$starts
  [ -d "$complete" ] || (umask 077 && mkdir "$complete") || exit 3
  rm -rf "$BAREBOAT_CONTROL"/work.* "$BAREBOAT_CONTROL/checks" "$BAREBOAT_CONTROL/failed"
  child='' stopped='' longest_of=()
  stop_by stop
  trap 'interrupted=1' USR1
  ! declare -F begin_scheduler > /dev/null || begin_scheduler
  find_hosts
  find_left
  uptime_s
  began_cs=$uptime_cs longest_cs=0
  [ "${left[0]%% *}" = 0000 ] || left=("warm-up ${schedule[0]#* }" "${left[@]}") # of these nodes; not counted
  for entry in "${left[@]}"; do
    measure_entry
  done
  finish 0
}

need_study() { # the nodes must see its directory
  [ -e "$study/study.json" ] && return 0
  printf 'bareboat: %s does not see the directory of the study: %s\n' "$HOSTNAME" "$study" >&2
  printf '  try: --store DIR on a file system that all nodes share\n' >&2
  exit 3
}

is_newest() { # whether no newer job was submitted for these runs
  local newest
  read -r newest < "$study/control/allocation" && [ "$newest" = "$allocation" ] && return 0
  printf 'bareboat: another job was submitted for these runs; this one ends\n' >&2
  return 1
}

finish() { # $1: exit code
  rm -rf "$work"
  [ "$1" -eq 70 ] || leave_images
  may_start_again "$1" || rm -f "$BAREBOAT_CONTROL/environment"
  printf '%s %(%s)T\n' "$1" -1 > "$BAREBOAT_CONTROL/exit_code"
  exit "$1"
}

stop() { # $1: exit code; the running arm ends first, and its run is not counted
  stopped=$1 interrupted=1
  [ -z "$child" ] || kill -s TERM "$child" 2> /dev/null
}

is_done() { # $1: a run
  [ -d "$complete/$1" ] || [ -d "$study/$1" ]
}

uptime_s() { # hundredths of a second, independent of the clock
  local words
  read -r words _ < /proc/uptime
  uptime_cs=$((10#${words/./}))
}

file_marks() { # of the files with metrics
  local file
  marks=()
  for file in ${metric_files[@]+"${metric_files[@]}"}; do
    marks+=("$(find "$file" -maxdepth 0 -type f -printf '%D %i %s %T@' 2> /dev/null)")
  done
}

leave_images() { # the copies that the runs shared
  local each
  for each in "$study"/arms/*/job.sh; do
    grep -q '^features=.* delivery ' "$each" || continue
    within_a_minute "$each" --leave "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" 1
    return "$?"
  done
}

within_a_minute() { # start a part of a script on each node; succeeds if all succeed within a minute
  local pid tenths how=$2 run_script=$1 most=600
  shift 2
  [ -z "$stopped" ] || most=100 # the scheduler kills this script soon
  if [ "$BAREBOAT_NODES" -eq 1 ]; then
    bash "$run_script" "$how" 0 "$@" < /dev/null > /dev/null 2>&1 &
  else
    on_each_node "$run_script" "$how" "$@" < /dev/null > /dev/null 2>&1 &
  fi
  pid=$!
  for ((tenths = 0; tenths < most; tenths++)); do
    kill -0 "$pid" 2> /dev/null || {
      wait "$pid"
      return "$?"
    }
    sleep 0.1
  done
  kill "$pid" 2> /dev/null
  return 1
}

nodes_answer() {
  [ "$BAREBOAT_NODES" -eq 1 ] || within_a_minute "$script" --here
}

# An arm that never ends, as after a restart of one of its nodes, must not use up the job's time.
end_if_late() { # end the process $2 after $1 seconds
  exec 7<> <(:) # no data comes from there
  read -r -t "$1" -u 7
  [ "$?" -gt 128 ] || return 1
  : > "$work/late"
  kill -s TERM "$2" 2> /dev/null
}

measure_arm() { # $1: run, $2: arm, $3: its position in the run
  local place=$work/$2 began began_cs number before=() code timer='' limit_s
  [ -z "$stopped" ] || finish "$stopped"
  (umask 077 && mkdir -p "$place"/{control/logs,ranks,meter,files}) || finish 3
  cp "$study/arms/$2"/*.sh "$place/control" || finish 3
  : > "$place/control/keep_image"
  [ ! -d "$BAREBOAT_CONTROL/checks/$2" ] || cp "$BAREBOAT_CONTROL/checks/$2"/* "$place/control"
  file_marks
  before=(${marks[@]+"${marks[@]}"})
  uptime_s
  began="$uptime_cs ${EPOCHREALTIME:-none}"
  printf -v began '%s %(%s)T' "$began" -1
  began_cs=$uptime_cs
  bash "$place/control/job.sh" "$BAREBOAT_RUN.$1.$2.$starts" "$place" < /dev/null > "$place/output.log" 2>&1 &
  child=$!
  if [ -n "${longest_of[$2]:-}" ]; then
    limit_s=$((longest_of[$2] / 20 + 60))
    end_if_late "$limit_s" "$child" &
    timer=$!
  fi
  await "$child"
  code=$?
  child=
  uptime_s
  if [ -n "$timer" ]; then
    # A process that was just made may miss another signal.
    { kill -KILL "$timer" && wait "$timer"; } 2> /dev/null
  fi
  printf 'code %s\nposition %s\nbegan %s\nended %s %s\nload %s\n' "$code" "$3" "$began" \
    "$uptime_cs" "${EPOCHREALTIME:-none}" "$(cat /proc/loadavg)" > "$place/result" || finish 3
  # Schedulers end the arm's processes before or after they signal this script.
  [ "$code" -lt 128 ] || sleep 2
  [ -z "$stopped" ] || finish "$stopped"
  if [ -e "$work/late" ]; then
    printf 'bareboat: an arm did not end within %s s, five times as long as before; this run is not counted\n' \
      "$limit_s" >&2
    finish 70
  fi
  [ "$((uptime_cs - began_cs))" -le "${longest_of[$2]:-0}" ] || longest_of[$2]=$((uptime_cs - began_cs))
  if [ "$code" -ne 0 ] && ! nodes_answer; then
    printf 'bareboat: not all nodes answer; this run is not counted\n' >&2
    finish 70
  fi
  file_marks
  for number in "${!marks[@]}"; do
    [ "${marks[number]}" = "${before[number]}" ] ||
      head -c 67108865 -- "${metric_files[number]}" > "$place/files/$number"
  done
  return "$code"
}

measure() { # $1: run, then its arms in their order
  local run=$1 arm position=0 code=0
  shift
  rm -rf "$work"
  (umask 077 && mkdir "$work") || finish 3
  printf '%s %s\n' "$BAREBOAT_HOST" "$(getconf _NPROCESSORS_ONLN)" > "$work/node"
  cp "$BAREBOAT_CONTROL/machine" "$work"
  printf '%(%s)T %s %s\n' -1 "$BAREBOAT_HOST" "$BAREBOAT_JOB" > "$work/start"
  for arm; do
    measure_arm "$run" "$arm" "$position" || {
      code=$?
      case $run in warm-up | 0000) break ;; esac
    }
    position=$((position + 1))
  done
  return "$code"
}

keep_checks() { # the warm-up checked the ranks on these nodes
  local arm
  for arm in "$work"/[0-9]*; do
    [ -e "$arm/control/mpi_check.log" ] || continue
    mkdir -p "$BAREBOAT_CONTROL/checks/${arm##*/}"
    : > "$BAREBOAT_CONTROL/checks/${arm##*/}/checked"
    cp "$arm"/control/mpi_check.[0-9]*.log "$BAREBOAT_CONTROL/checks/${arm##*/}" 2> /dev/null
  done
}

find_hosts() {
  mapfile -t hosts < <(if [ "$BAREBOAT_NODES" -gt 1 ]; then hosts; else echo "$BAREBOAT_HOST"; fi)
  if [ "${#hosts[@]}" -ne "$BAREBOAT_NODES" ]; then
    printf 'bareboat: the job requires %s nodes but has: %s\n' "$BAREBOAT_NODES" "${hosts[*]}" >&2
    finish 3
  fi
  printf '%s\n' "${hosts[@]}" > "$BAREBOAT_CONTROL/hosts"
}

find_left() { # the runs that are not complete; ends a job that was started repeatedly and completed none
  local entry
  left=() finished=0
  for entry in "${schedule[@]}"; do
    if is_done "${entry%% *}"; then finished=$((finished + 1)); else left+=("$entry"); fi
  done
  echo "$finished" >> "$BAREBOAT_CONTROL/progress"
  if [ "$(grep -cx "$finished" "$BAREBOAT_CONTROL/progress")" -gt 2 ]; then
    printf 'bareboat: two starts completed no run; the job is not started a third time\n' >&2
    finish 70
  fi
  [ "${#left[@]}" -gt 0 ] || finish 0
}

measure_entry() { # $entry: a run of the schedule, or the warm-up
  local run_began_cs attempt code
  is_newest || exit 0
  uptime_s
  run_began_cs=$uptime_cs
  if [ -n "$time_limit_s" ] &&
    [ "$((uptime_cs - began_cs + longest_cs * 5 / 4 + 1500))" -gt "$((time_limit_s * 100))" ] &&
    [ "$longest_cs" -gt 0 ]; then
    printf 'bareboat: the time limit of %s s leaves no time for the next run\n' "$time_limit_s" >&2
    finish 0
  fi
  for attempt in 1 2 3; do
    code=0
    # shellcheck disable=SC2086
    measure $entry || code=$?
    [[ $entry != 0000* && $entry != warm-up* ]] || break
    # Another job of the user on a node removed the copy that the runs share.
    grep -qs ' unpacked ' "$work"/*/control/deliveries.* || break
    [ "$attempt" -lt 3 ] || break
    printf 'bareboat: run %s copied the image again, and is repeated\n' "${entry%% *}" >&2
  done
  if [ "$code" -ne 0 ] && [[ $entry == 0000* || $entry == warm-up* ]]; then
    mv -T "$work" "$BAREBOAT_CONTROL/failed"
    printf 'bareboat: the warm-up failed\n' >&2
    finish 1
  fi
  case $entry in
    warm-up*) keep_checks ;;
    0000*)
      keep_checks
      mv -T "$work" "$complete/0000"
      ;;
    *)
      is_newest || exit 0
      mv -T "$work" "$complete/${entry%% *}"
      ;;
  esac
  uptime_s
  [ "$((uptime_cs - run_began_cs))" -le "$longest_cs" ] || longest_cs=$((uptime_cs - run_began_cs))
  [[ $entry == warm-up* ]] || finished=$((finished + 1))
  printf 'run %s: %s.%02d s; %s left\n' "${entry%% *}" "$(((uptime_cs - run_began_cs) / 100))" \
    "$(((uptime_cs - run_began_cs) % 100))" "$((${#schedule[@]} - finished))"
}
