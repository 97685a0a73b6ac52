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

# The first rank that did not end by a signal shows the cause; its exit code is the job's.
find_first_failure() {
  local failed first log
  failed_rank='' failed_status=''
  [ "$code" -ne 0 ] || return 0
  failed=$(exits_of_run | grep -v ' 0$')
  first=$(grep -vE ' (129|130|137|143)$' <<< "$failed" | head -n 1)
  read -r failed_rank failed_status <<< "${first:-$(head -n 1 <<< "$failed")}"
  code=${failed_status:-$code}
  has output && [ -n "$failed_status" ] || return 0
  printf 'bareboat: rank %s ended first, with exit code %s; its last output:\n' \
    "$failed_rank" "$failed_status" >&2
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
