# shellcheck shell=bash disable=SC2034,SC2154
# Start a node's ranks one by one.
# Expects: $ranks_per_node, $world_size, $rank_logs, $BAREBOAT_NODE, $BAREBOAT_MASTER, $BAREBOAT_PORT;
#   job_command, ends.sh.

# A rank's output is kept, and goes to the job's output line by line, with the rank's number. Silent ranks
# start no program: bash reads the first byte, and sed joins it to the rest of its line.
read_output() { # $1: the file for the copy
  local first
  trap '' TERM INT HUP
  : > "$1"
  IFS= LC_ALL=C read -r -d '' -n 1 first || return 0
  LC_ALL=C exec sed -u -e '1{$!N;s/\n//' -e '}' -e "w $1" -e "s/^/[rank $RANK] /" /dev/fd/7 - 7< <(
    case $first in
      '') printf '\0' ;;
      $'\n') printf '\n\n' ;;
      *) printf '%s' "$first" ;;
    esac
  )
}

start_command_of_rank() {
  ! has names || rank_names
  ! has sealed || seal_environment
  job_command
}

# One rank, with its variables.
start_rank() { # $1: its number on this node
  trap - INT QUIT
  trap : TERM INT HUP # for the command, which this shell waits for
  LOCAL_RANK=$1
  RANK=$((BAREBOAT_NODE * ranks_per_node + LOCAL_RANK))
  WORLD_SIZE=$world_size LOCAL_WORLD_SIZE=$ranks_per_node
  MASTER_ADDR=$BAREBOAT_MASTER MASTER_PORT=$BAREBOAT_PORT
  local log=$rank_logs/$RANK code
  exec 3> >(read_output "$log.out")
  exec 4> >(exec >&2 3>&- && read_output "$log.err")
  BAREBOAT_SCRIPT='' start_command_of_rank >&3 2>&4 3>&- 4>&- 6>&-
  code=$?
  ! has ends_first || await_command
  exec 3>&- 4>&- 6>&-
  echo "$RANK $code" >> "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE"
  [ "$code" -ne 75 ] || let_save exits "$world_size"
  [ "$code" -eq 0 ] || is_stopping || end_run # otherwise the others would wait for it forever
  exit "$code"
}

run_ranks() {
  local number children=() status
  [ -e /dev/fd/0 ] || exec < /dev/null
  # A pipe without data: its end shows that all readers of the ranks' output have finished.
  exec 5< <(:)
  exec 6> /proc/self/fd/5
  for ((number = 0; number < ranks_per_node; number++)); do
    if [ "$((BAREBOAT_NODE + number))" -eq 0 ]; then
      start_rank 0 <&0 5<&- &
    else
      start_rank "$number" < /dev/null 5<&- &
    fi
    children+=("$!")
  done
  exec 6>&-
  child=${children[0]}
  ! has canary || start_canary
  ! has discarded || start_keeping
  code=0
  for child in "${children[@]}"; do
    await "$child" || {
      status=$?
      [ "$code" -ne 0 ] || code=$status
    }
  done
  ! has canary || end_canary
  ! has discarded || stop_keeping
  # The last lines; processes that hold a rank's output after its end are not waited for.
  read -r -t 1 -u 5
  exec 5<&-
  ! has watching || stop_watching
}
