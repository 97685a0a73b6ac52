# shellcheck shell=bash disable=SC2034,SC2154
# The ranks' exit codes, and which rank failed first.
# Expects: $start, $world_size, $rank_logs, $code, $BAREBOAT_CONTROL, $BAREBOAT_RUN_DIR, $BAREBOAT_NODE.

# Lines RANK CODE, in the order in which the ranks ended, as this script keeps them; or as the ranks write them
# from inside their one container.
exits_of_run() {
  if [ "$start" = nodes ]; then
    exits_of_ranks 0 "$world_size"
  else
    cat "$BAREBOAT_CONTROL"/exits.* 2> /dev/null
  fi
}

exits_of_node() {
  if [ "$start" = nodes ]; then
    exits_of_ranks "$BAREBOAT_NODE" 1
  else
    cat "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE" 2> /dev/null
  fi
}

exits_of_ranks() { # $1: the first of these files, $2: how many; they may contain anything
  local number file found=()
  for ((number = $1; number < $1 + $2; number++)); do
    file=$BAREBOAT_RUN_DIR/exits.$number
    [ ! -f "$file" ] || [ -L "$file" ] || found+=("$file")
  done
  [ "${#found[@]}" -eq 0 ] || head -qc 65536 "${found[@]}" |
    awk -v n="$world_size" '/^(0|[1-9][0-9]*) (0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$/ && $1 < n'
}

# The first rank that did not end by a signal shows the cause, and its exit code is the job's. Else one that was killed:
# if the others' exit codes are known and its is not, with the part of this script that would have written it.
find_first_failure() {
  local log shown='' place=''
  failed_rank='' failed_status=''
  [ "$code" -ne 0 ] || return 0
  read -r failed_rank failed_status < <(exits_of_run | awk -v size="$world_size" -v stopped="$stopped" '
    { ended[$1] }
    $2 == 0 { next }
    !any { any = $0 }
    $2 !~ /^(129|130|137|143)$/ && !own { own = $0 }
    $2 == 137 && !killed { killed = $0 }
    END {
      for (rank = 0; rank in ended; rank++);
      if (!killed && any ~ /^[0-9]/ && rank < size) killed = rank " 137"
      print own ? own : killed && !stopped ? killed : any
    }')
  code=${failed_status:-$code}
  [ -n "$failed_status" ] && { has output || { [ "$world_size" -gt 1 ] && [ -z "$stopped" ]; }; } || return 0
  if [ "${BAREBOAT_NODES:-1}" -gt 1 ] && [ "$start" = program ]; then
    place=$(grep -lx "$failed_rank $failed_status" "$BAREBOAT_CONTROL"/exits.*)
    place=${place:+ on ${place##*/exits.}}
  elif [ "${BAREBOAT_NODES:-1}" -gt 1 ]; then
    place=" on ${hosts[failed_rank / ranks_per_node]:-}"
  fi
  ! has output || shown='; its last output:'
  printf 'bareboat: rank %s%s ended first, with exit code %s%s\n' "$failed_rank" "$place" "$failed_status" "$shown" >&2
  has output || return 0
  for log in "$rank_logs/$failed_rank".{out,err}; do
    [ ! -f "$log" ] || [ -L "$log" ] || tail -c 65536 "$log"
  done 2> /dev/null | tail -n 20 | sed 's/^/  /' >&2
}

let_save() { # give the other ranks time to save. $1: files by prefix, $2: their number of lines at the end
  # With a limit: some ranks may not save.
  local deadline=$((SECONDS + 60))
  while [ "$SECONDS" -lt "$deadline" ]; do
    [ "$(cat "$BAREBOAT_CONTROL/$1".* 2> /dev/null | wc -l)" -lt "$2" ] || return 0
    sleep 0.2
  done
}

# A port without a listener; jobs start the search at different ones. (Reading the kernel's table of sockets
# takes 15 ms.)
find_port() {
  local number=${BAREBOAT_JOB//[!0-9]/}
  # NUMBER, NUMBER[ELEMENT] and the like; behind PBS's is the server's name, which may have digits, too.
  [[ ! $BAREBOAT_JOB =~ ^([0-9]+)([][_.]+([0-9]+)\]?)?(\.|$) ]] || number=${BASH_REMATCH[1]}${BASH_REMATCH[3]-}
  BAREBOAT_PORT=$((20000 + 10#0${number:0:15} % 20000))
  while { true < "/dev/tcp/127.0.0.1/$BAREBOAT_PORT" || true < "/dev/tcp/$BAREBOAT_MASTER/$BAREBOAT_PORT"; } \
    2> /dev/null; do
    BAREBOAT_PORT=$((BAREBOAT_PORT + 1))
  done
}

set_rank_logs() { # the directory of the ranks' output; ranks in one container write to it themselves
  rank_logs=
  has output || return 0
  if [ "$start" = nodes ]; then rank_logs=$BAREBOAT_RUN_DIR/logs; else rank_logs=$BAREBOAT_CONTROL/logs; fi
}

make_rank_logs() {
  has output || return 0
  [ "$start" != nodes ] && [ -d "$rank_logs" ] || mkdir "$rank_logs" || exit 3
}
