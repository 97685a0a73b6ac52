# shellcheck shell=bash disable=SC2034,SC2154,SC2153,SC2015
# A scheduler's job: the part of the first node, and that of every node or rank.
# Expects: $start, $rung, $world_size, $BAREBOAT_NODES, $BAREBOAT_JOB, name_run; hosts, on_each_node and again of
#   the scheduler, and begin_scheduler where it needs a preparation.

# -- the parts of the script -----------------------------------------------------------------------

# The scheduler starts this script on the first node, which starts it again on every node:
# bash SCRIPT --node|--rank NODE RUN CONTROL MASTER PORT WHAT;  bash SCRIPT --signal NODE RUN CONTROL NAME;
# bash SCRIPT --bring|--leave NODE RUN CONTROL TRIES;  bash SCRIPT --reach HOST COMMAND..., as an ssh.
# NODE is a number, or the name of the variable with the number. No container sees the directory CONTROL; the
# ranks write to another one beside it.
main() {
  part=--first world_watch='' child='' stopped=
  case ${1:-} in
    --node | --rank)
      part=$1 what=$7 BAREBOAT_NODE=$(($2)) BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4
      BAREBOAT_MASTER=$5 BAREBOAT_PORT=$6
      ;;
    --signal | --bring | --leave)
      part=$1 BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4 what=${5:-1}
      ;;
    --reach)
      shift
      reach "$@"
      exit "$?"
      ;;
    *) name_run "$@" ;;
  esac
  [ "$rung" -gt 1 ] && [ "$part" = --first ] || exit_commands=
  read -r BAREBOAT_HOST < /proc/sys/kernel/hostname # the output of uname -n, without starting a program
  HERE=" on $BAREBOAT_HOST"
  BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks
  ! has meter || export BAREBOAT_METER_DIR=${BAREBOAT_CONTROL%/*}/meter
  set_rank_logs
  ! has sweep || need_point
  export BAREBOAT_SCRIPT=$BAREBOAT_RUN
  case $part in
    --first) run_first "$@" ;;
    --signal)
      deliver "$what"
      exit 0 # otherwise Slurm kills this part on the slower nodes
      ;;
    *)
      [ "$what" != health ] || health_part
      run_node
      ;;
  esac
}

run_first() { # $@: the script's arguments
  script_arguments=("$@")
  if [ "$rung" -eq 1 ]; then
    begin_job
  else
    printf 'bareboat: the ranks are started by %s\n' "$launch" >&2
  fi
  pass_signals_on
  make_rank_logs
  ! has secret || make_secret
  ! declare -F begin_scheduler > /dev/null || begin_scheduler
  if [ "$rung" -eq 1 ]; then
    check_starts
  fi
  ! has watching || begin_watching
  if [ "$rung" -eq 1 ]; then
    ! has warning || warn_later
    if [ "$start" = program ] && has modules; then load_modules || finish 3; fi
  fi
  find_master
  find_port
  ! has mpi_nodes || lead_launcher
  if [ "$rung" -eq 1 ] && has health; then check_health; fi
  if [ "$start" = program ] && has delivery; then bring_images; fi
  ! has mpi_check || check_ranks "$@"
  if has fabric; then begin_fabric; fi
  run job
  code=$?
  check_end
  if [ "$start" = program ] && has delivery; then leave_images 10; fi
  ! has watching || end_watching
  if has fabric; then end_fabric; fi
  find_first_failure
  report_lost
  ! has discarded || report_discarded
  ! has requeue || requeue "$@"
  finish "$code"
}

run_node() {
  ends=$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST # one node, one file
  [ "$part" != --node ] || ends=$BAREBOAT_CONTROL/ends.$BAREBOAT_NODE
  : >> "$ends" # it began
  at_exit leave_node
  ! has signals_by_file || watch_signals
  stop_by stop_node
  trap '' QUIT # Ctrl-\ is for the program, which may continue
  ! has environment_from || read_environment
  need_all
  ! has delivery || use_image
  ! has interface || find_interface
  ! has secret || read_secret
  ! has sweep || set_sweep_values
  if [ "$what" != check ]; then
    start_sampler
    record_limits
  fi
  ! has watching || start_watching
  ! has kernel_cache || use_kernels
  case $start in
    program) run_rank ;;
    ranks) run_ranks ;;
    nodes) run_once job ;;
  esac
  ! has output || end_node
  if [ "$code" -ne 0 ]; then end_run; else others_here || end_left; fi
  exit "$code"
}

# -- the first node --------------------------------------------------------------------------------

begin_job() {
  if has sweep; then
    begin_point
    ! has rungs || (umask 077 && cp "${BAREBOAT_CONTROL%/points/*}"/rung.*.sh "$BAREBOAT_CONTROL")
  fi
  ! has log || keep_log
  begin_run
  if has log && [ "$starts" -gt 1 ]; then
    printf 'bareboat: start %s on %s\n' "$starts" "$BAREBOAT_HOST" # what is above belongs to earlier starts
  fi
  ! has environment_from || read_environment_first
}

# $1: exit code; kept in a file, because schedulers forget it. Readers wait until the line is complete.
finish() {
  ! has environment_from || remove_environment "$1"
  printf '%s %(%s)T\n' "$1" -1 > "$BAREBOAT_CONTROL/exit_code"
  exit "$1"
}

everywhere() { # run this script on every node, with these arguments after the node's number
  local how=$1
  shift
  if [ "$BAREBOAT_NODES" -eq 1 ]; then
    bash "$script" "$how" 0 "$@"
  else
    on_each_node "$script" "$how" "$@"
  fi
}

pass_on() { # a signal from the scheduler, for the ranks on all nodes
  everywhere --signal "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$1"
}

# The scheduler kills the ranks when their time to save is over. Their exit code is the job's.
stop() { # $1: exit code before there are ranks, $2: the signal
  interrupted=1
  [[ $stopped != *"$2"* ]] || return 0
  stopped+=" $2" code=$1 stop_code=$1
  [ -n "$child" ] || finish "$code"
  pass_on "$2" > /dev/null 2>&1 &
  declare -F find_lost > /dev/null && find_lost && [ -s "$BAREBOAT_CONTROL/lost" ] || return 0
  report_lost # the scheduler ends the job because of it
  ! has requeue || requeue "${script_arguments[@]}"
  finish "$code"
}

pass_signals_on() {
  stop_by stop
  # Before the end of the job's time, or its preemption: time to write a checkpoint.
  trap 'interrupted=1; pass_on USR1' USR1
}

end_hung() {
  tell_hang
  trap '' TERM INT HUP
  finish "$hung_code"
}

run() { # $1: job, check or health
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "$1"
  if [ "$start" = program ]; then
    program bash "$script" --rank 0 "$@" &
  else
    (
      trap : TERM INT HUP # the scheduler's, for all processes: it waits as this script does
      everywhere --node "$@"
    ) &
  fi
  child=$!
  await "$child"
  code=$? child=
  [ -z "$stopped" ] || [ "${!#}" = job ] || finish "$stop_code"
  return "$code"
}

# The run's processes on different nodes authenticate each other with it.
make_secret() {
  (
    umask 077
    rm -f "$BAREBOAT_CONTROL/secret"
    set -C
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$BAREBOAT_CONTROL/secret"
  ) || finish 3
}

check_starts() { # a job that loses its nodes is not restarted forever
  [ "$(count_losses)" -lt 2 ] || end_losses
}

count_losses() { # the starts before this one that the job did not request, and those after a loss that it saw
  local agains=() losses=()
  [ ! -e "$BAREBOAT_CONTROL/agains" ] || mapfile -t agains < "$BAREBOAT_CONTROL/agains"
  [ ! -e "$BAREBOAT_CONTROL/losses" ] || mapfile -t losses < "$BAREBOAT_CONTROL/losses"
  echo "$((starts - 1 - ${#agains[@]} + ${#losses[@]}))"
}

end_losses() {
  printf 'bareboat: this job lost its nodes twice; it is not started a third time\n' >&2
  finish 70
}

report_lost() { # where the scheduler's snippet saw it; the other ranks' exit codes follow from it
  local lost
  if declare -F find_lost > /dev/null && [ "$BAREBOAT_NODES" -gt 1 ] && [ "$code" -ne 0 ]; then find_lost; fi
  [ -s "$BAREBOAT_CONTROL/lost" ] || return 0
  mapfile -t lost < "$BAREBOAT_CONTROL/lost"
  printf 'bareboat: a node was lost: %s\n' "${lost[*]}" >&2
  code=70
}

warn_later() { # SIGUSR1 before the end of the job's time, if the scheduler does not send it
  (
    trap 'kill "$!" 2> /dev/null; exit' TERM
    sleep "$warning_after_s" > /dev/null 2>&1 &
    wait "$!" && kill -s USR1 "$$" 2> /dev/null
  ) &
  at_exit "kill $! 2> /dev/null"
}

find_master() { # the nodes, and the address of the first one: names may not resolve in an image
  local address
  BAREBOAT_MASTER=127.0.0.1
  [ "$BAREBOAT_NODES" -gt 1 ] || return 0
  mapfile -t hosts < <(hosts)
  if [ "${#hosts[@]}" -ne "$BAREBOAT_NODES" ]; then
    printf 'bareboat: the job requires %s nodes but has: %s\n' "$BAREBOAT_NODES" "${hosts[*]}" >&2
    finish 3
  fi
  printf '%s\n' "${hosts[@]}" > "$BAREBOAT_CONTROL/hosts"
  BAREBOAT_MASTER=${hosts[0]}
  while read -r address _; do
    if [[ $address != 127.* ]]; then
      BAREBOAT_MASTER=$address
      break
    fi
  done < <(getent ahostsv4 "${hosts[0]}")
}

# The job succeeds when all parts do. srun returns 0 for a node lost after the others' end. The image's mpirun
# checks this itself.
check_end() {
  [ "$BAREBOAT_NODES" -gt 1 ] && [ "$code" -eq 0 ] || return 0
  if [ "$start" = program ]; then
    all_ended exits "$world_size" && return 0
  elif has output; then
    all_ended over "$BAREBOAT_NODES" && return 0
  else
    return 0
  fi
  printf 'bareboat: a node was lost: not all ranks have ended\n' >&2
  code=70
}

all_ended() { # $1: the files with a line per end, $2: of how many. Another node's files may appear late,
  local looks # unless something changes in their directory
  for ((looks = 0; looks < 300; looks++)); do
    [ "$(cat "$BAREBOAT_CONTROL/$1".* 2> /dev/null | wc -l)" -lt "$2" ] || return 0
    : > "$BAREBOAT_CONTROL/look" && rm "$BAREBOAT_CONTROL/look"
    sleep 0.2
  done
  return 1
}

requeue() { # $@: the script's arguments
  if [ -s "$BAREBOAT_CONTROL/lost" ]; then
    [ "$(count_losses)" -lt 1 ] || end_losses
    printf 'bareboat: requeueing the job\n' >&2
  elif [ "$code" -eq 75 ]; then # EX_TEMPFAIL: the job has saved its state and continues later
    printf 'bareboat: the job requests a restart: requeueing it\n' >&2
  else
    return 0
  fi
  # Also where a further way started the ranks.
  script=$BAREBOAT_CONTROL/job.sh
  # The scheduler may send them to requeue it; they do not end the run.
  trap '' TERM INT HUP
  if again "$@" > "$BAREBOAT_CONTROL/again"; then
    [ "$code" -eq 75 ] || echo "$starts" >> "$BAREBOAT_CONTROL/losses"
    tail -n 1 "$BAREBOAT_CONTROL/again" >> "$BAREBOAT_CONTROL/agains"
    exit "${AGAIN:-$code}"
  fi
}

# -- every node ------------------------------------------------------------------------------------

leave_node() { status=$? && echo "$status" >> "$ends"; }

end_node() { # whose exit code ends the other nodes' parts
  echo "$code" >> "$BAREBOAT_CONTROL/over.$BAREBOAT_NODE"
  [ "$code" -eq 0 ] || { ! is_stopping && ! exits_of_node | grep -q ' 75$'; } || let_save over "$BAREBOAT_NODES"
}

stop_node() { # $1: exit code before there is a command, $2: the signal
  interrupted=1
  [[ $stopped != *"$2"* ]] || return 0
  stopped+=" $2"
  if [ -z "$child" ]; then
    end_run
    exit "$1"
  fi
  pass_once "$2"
}

deliver() { # $1: a signal for the run's processes on this node
  local pid caught
  case $1 in
    END) # another node's part failed
      end_run
      return "$?"
      ;;
    TERM | INT | HUP)
      sleep 1 # the part of this node or rank may have it from the scheduler
      pass_once "$1"
      return 0
      ;;
  esac
  # A process without a handler would die of it.
  for pid in $(run_pids); do
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)
    (((0x${caught:-0} >> ($(kill -l "$1") - 1)) & 1)) && kill -s "$1" "$pid" 2> /dev/null
  done
}

watch_signals() { # from the first node through a file, for a scheduler that starts one command on a node
  ( # Polled every second until the node's part ends.
    told=0 signals=()
    exec 7<> <(:) # no data comes from there: a wait without starting a program every second
    while :; do
      read -r -t 1 -u 7 || [ "$?" -gt 128 ] || sleep 1
      kill -0 "$$" 2> /dev/null || exit
      [ ! -e "$BAREBOAT_CONTROL/signals" ] || mapfile -t signals < "$BAREBOAT_CONTROL/signals"
      while [ "$told" -lt "${#signals[@]}" ]; do
        deliver "${signals[told]}"
        told=$((told + 1))
      done
    done
  ) < /dev/null > /dev/null 2>&1 &
  at_exit "kill $! 2> /dev/null"
}

read_secret() { # not exported: only processes of the launcher get it
  unset BAREBOAT_SECRET
  read -r BAREBOAT_SECRET < "$BAREBOAT_CONTROL/secret" || [ -n "${BAREBOAT_SECRET:-}" ] || exit 3
}

# The resource usage of the run's processes on this node, if Bareboat's sampler and Python exist.
start_sampler() {
  local program=$BAREBOAT_CONTROL/sampler.py python place=$BAREBOAT_CONTROL/usage/$BAREBOAT_HOST
  [ -e "$program" ] || program=${BAREBOAT_CONTROL%/points/*}/sampler.py # of all points of a sweep or a study
  [ -e "$program" ] && python=$(command -v python3) || return 1
  (umask 077 && mkdir -p "${place%/*}" && mkdir "$place") 2> /dev/null || return 0 # by another rank's part
  "$python" -I -S "$program" "$BAREBOAT_RUN" "$$" "$place" < /dev/null > /dev/null 2>&1 &
  at_exit "kill $! 2> /dev/null"
}

# The network interface that leads to the first node: by the longest route, else by `ip`; without it the
# libraries choose.
find_interface() {
  BAREBOAT_INTERFACE=lo
  [ "$BAREBOAT_NODES" -gt 1 ] || return 0
  BAREBOAT_INTERFACE=
  interface_by_routes
  if [ -z "$BAREBOAT_INTERFACE" ] && command -v ip > /dev/null; then
    BAREBOAT_INTERFACE=$(ip -o -4 address show to "$BAREBOAT_MASTER" | awk '{ print $2; exit }')
    [ -n "$BAREBOAT_INTERFACE" ] ||
      BAREBOAT_INTERFACE=$(ip -o route get "$BAREBOAT_MASTER" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
  fi
}

# The only one with the longest route there, read from the kernel without a program.
interface_by_routes() {
  local address device destination flags mask longest=-1
  [[ $BAREBOAT_MASTER =~ ^([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)$ ]] || return 1
  set -- "${BASH_REMATCH[@]}" # the kernel writes the last byte first
  address=$(($5 << 24 | $4 << 16 | $3 << 8 | $2))
  while read -r device destination _ flags _ _ _ mask _; do
    [ "$flags" != Flags ] || continue
    (((16#$flags & 0x201) == 1)) || continue # up, and not a reject route
    (((address & 16#$mask) == 16#$destination && 16#$mask >= longest)) || continue
    if ((16#$mask > longest)); then
      longest=$((16#$mask)) BAREBOAT_INTERFACE=$device
    elif [ "$device" != "$BAREBOAT_INTERFACE" ]; then
      BAREBOAT_INTERFACE=
    fi
  done 2> /dev/null < /proc/net/route
}
