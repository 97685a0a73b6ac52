"""The pieces of bash that job scripts are made of; `{…}` is for str.format, and bash's braces doubled."""

from __future__ import annotations

HEAD = """\
# {title}
# Written by Bareboat {version}, plan {digest}.
# It needs bash and what is named under "What must be there", but no Bareboat.
set -u

# Every process of this run carries this mark in its environment, whatever session or container it moves
# to. This shell itself does not: it got the mark as an argument, and does not export it.
unset BAREBOAT_RUN
"""

FUNCTIONS = """\
# A process can lose the mark: by overwriting its environment (setproctitle), or through env -i. So the run's
# processes are those that carry it, all that descends from them or from this script, and all that shares
# something with them which a process cannot leave ($run_apart). The script's own helpers carry this:
export BAREBOAT_SCRIPT=$BAREBOAT_RUN

carriers() { # $1: a variable with its value, as processes got it at their start
  grep -lszxF "$1" /proc/[0-9]*/environ | tr -dc '0-9\\n'
}

is_script() { # $1: a process; whether it is this script, a copy of it, or its part for a node or a rank
  local word words=
  [ "/proc/$1/exe" -ef "/proc/$$/exe" ] || return
  while IFS= read -r -d '' word; do
    [ "$word" != "$BAREBOAT_RUN" ] || return 0
    words+=$word$'\\n'
  done < "/proc/$1/cmdline"
  [ "$words" = "$own_words" ]
}

run_pids() { # the run's processes on this node
  local pid line fields word own_words='' more=1 own_session own_apart
  local -A parent=() session=() apart=() script=() ours=() sessions=() together=()
  {
    for line in /proc/[0-9]*/stat; do
      read -r line < "$line" || continue
      pid=${line%% *}
      # shellcheck disable=SC2206
      fields=(${line##*) })
      [ "${fields[0]}" = Z ] || parent[$pid]=${fields[1]} session[$pid]=${fields[3]}
    done
    case $run_apart in
      user) while read -r word line; do line=${line#/proc/} apart[${line%%/*}]=$word; done \\
        < <(stat -L -c '%i %n' /proc/[0-9]*/ns/user) ;;
      tracer) while IFS=$'/:\\t' read -r _ _ pid _ _ _ word; do [ "$word" = 0 ] || apart[$pid]=$word; done \\
        < <(grep -s '^TracerPid:' /proc/[0-9]*/status /dev/null) ;;
    esac
    while IFS= read -r -d '' word; do own_words+=$word$'\\n'; done < "/proc/$$/cmdline"
    own_session=${session[$$]:-} own_apart=${apart[$$]:-}
    # In this order: a copy of this script that becomes a helper meanwhile is seen as the one or the other.
    for pid in "${!parent[@]}"; do ! is_script "$pid" || script[$pid]=1; done
    for pid in $(carriers "BAREBOAT_SCRIPT=$BAREBOAT_RUN"); do script[$pid]=1; done
    for pid in $(marked_pids); do ours[$pid]=1; done
    while [ -n "$more" ]; do
      more=
      for pid in "${!ours[@]}"; do
        [ "$run_apart" != user ] || [ -z "$own_apart" ] || [ "${apart[$pid]:-$own_apart}" = "$own_apart" ] ||
          together[${apart[$pid]}]=1
        [ "$run_apart" != tracer ] || together[$pid]=1
        # Only where it began it: then all in it are its descendants.
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
  } 2>/dev/null
  [ "${#ours[@]}" -eq 0 ] || printf '%s\\n' "${!ours[@]}"
}

gone() { # $1: a command that lists processes, $2: wait so many tenths of a second until there are none
  local tenths
  for ((tenths = 0; tenths < $2; tenths++)); do
    [ -n "$("$1")" ] || return 0
    sleep 0.1
  done
  return 1
}

end_run() { # ask the processes to end, wait up to 10 s, then make them
  # Those with the mark first: what started them (mpirun, an engine) would end them at once.
  signal_to TERM marked_pids
  if gone marked_pids 100; then
    gone run_pids 10 && return
    signal_to TERM run_pids
    gone run_pids 20 && return
  fi
  signal_to KILL run_pids
  gone run_pids 100
}

marked_pids() {
  carriers "BAREBOAT_RUN=$BAREBOAT_RUN"
}

signal_to() { # $1: the signal, $2: a command that lists processes
  local pids
  pids=$("$2")
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -s "$1" $pids 2>/dev/null
}
"""

STOP = """\
stop() { # $1: exit code
  trap '' TERM INT HUP
  end_run
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP
"""

NEED = """\
need() { # $1: path, $2: what it is, $3: what to do
  [ -e "$1" ] && return
  printf 'bareboat: %s is not there%s: %s\\n  try: %s\\n' "$2" "$HERE" "$1" "$3" >&2
  exit 3
}
"""

#: Of a program that is a file of the host: the exit codes of a shell.
EXECUTABLE = """\
if [ ! -x {place} ]; then
  if [ -e {place} ]; then
    printf 'bareboat: %s is not executable%s: %s\\n  try: %s\\n' {word} "$HERE" {place} {chmod} >&2
    exit 126
  fi
  printf 'bareboat: %s is missing%s: there is no file %s\\n  try: %s\\n' {word} "$HERE" {place} \\
    {remedy} >&2
  exit 127
fi
"""

#: By name: their values are written down nowhere.
ENVIRONMENT_FROM = """\
# Environment variables that are passed on by name (environment_from).
for name in {names}; do
  [ -n "${{!name+set}}" ] && continue
  printf 'bareboat: the environment variable %s is not set%s\\n  try: %s\\n' "$name" "$HERE" \\
    "export $name before you run or submit the job" >&2
  exit 3
done
"""

SHELL_ARGUMENTS = """\
# A shell in the container of a job that runs on this node: bash SCRIPT RUN CONTROL.
BAREBOAT_RUN=$1 BAREBOAT_CONTROL=$2
BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
HERE=" on $BAREBOAT_HOST"
"""

SHELL_ENVIRONMENT = """\
# The job's own values of what is passed on by name: its processes have them, and no file.
unset {names}
for pid in $(grep -lszxF "BAREBOAT_RUN=$BAREBOAT_RUN" /proc/[0-9]*/environ | tr -dc '0-9\\n'); do
  while IFS= read -r -d '' entry; do
    case ${{entry%%=*}} in {cases}) export "$entry" ;; esac
  done 2> /dev/null < "/proc/$pid/environ"
done
"""

#: Some tools that reach nodes one by one bring the job's environment there, and some (ssh) do not.
ENVIRONMENT_READ = """\
# Where the job's environment did not come along, the first node hands these on by a pipe.
for name in {names}; do
  [ "$BAREBOAT_NODE" -eq 0 ] || [ -n "${{!name+set}}" ] && continue
  while IFS= read -r -t 30 -d '' name && [ -n "$name" ] && IFS= read -r -t 30 -d '' value; do
    export "$name=$value"
  done
  break
done
[ "$BAREBOAT_NODE" -eq 0 ] || exec < /dev/null
"""
ENVIRONMENT_HANDED = """\
hand_on() {{ # names and values for another node; an empty name is the end
  local name
  for name in {names} ''; do printf '%s\\0%s\\0' "$name" "${{name:+${{!name}}}}"; done 2> /dev/null
}}

"""

#: 75: a rank has saved its state and wants to go on later. The others are not ended for it at once.
LET_SAVE = """\
let_save() { # $1: files by the beginning of their names, $2: how many lines they have when all have saved
  local deadline=$((SECONDS + 60)) # for those that were not told
  while [ "$SECONDS" -lt "$deadline" ]; do
    [ "$(cat "$BAREBOAT_CONTROL/$1".* 2>/dev/null | wc -l)" -lt "$2" ] || return
    sleep 0.2
  done
}
"""

#: What the script itself writes and reads again lies where no container can write.
RUN_FOLDER = """\
# What is kept of the run: by this script in BAREBOAT_CONTROL, which no container sees; by the ranks in
# BAREBOAT_RUN_DIR.
if [ -z "${BAREBOAT_CONTROL:-}" ]; then
  BAREBOAT_CONTROL=$(mktemp -d "${TMPDIR:-/tmp}/bareboat-run.XXXXXX") || exit 3
  trap 'rm -rf "$BAREBOAT_CONTROL"' EXIT
  BAREBOAT_RUN_DIR=$BAREBOAT_CONTROL/ranks
  mkdir "$BAREBOAT_RUN_DIR" || exit 3
fi
export -n BAREBOAT_CONTROL
"""

#: The ranks' output, where the script writes it.
LOGS = """\
[ -d "$BAREBOAT_CONTROL/logs" ] || mkdir "$BAREBOAT_CONTROL/logs" || exit 3
"""

#: The same, where the ranks write it themselves.
LOGS_OF_RANKS = """\
mkdir "$BAREBOAT_RUN_DIR/logs" || exit 3
"""

#: Exit codes that ranks leave from inside their containers, where anything may be written.
EXITS_OF_RANKS = """\
exits() {{ # $1: of the first of these files, $2: how many; lines RANK CODE, and nothing else
  local number file found=()
  for ((number = $1; number < $1 + $2; number++)); do
    file=$BAREBOAT_RUN_DIR/exits.$number
    [ ! -f "$file" ] || [ -L "$file" ] || found+=("$file")
  done
  [ "${{#found[@]}}" -eq 0 ] || head -qc 65536 "${{found[@]}}" |
    awk '/^(0|[1-9][0-9]*) (0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$/ && $1 < {world_size}'
}}
"""

#: The node's name, where the script's head does not ask for it.
HOST = """\
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
"""

#: The job on one node, started once. In the background, because bash runs a trap only between commands or
#: during `wait`.
ONCE = """\
[ -e /dev/fd/0 ] || exec </dev/null
{keep}# The job: in the background, because bash runs a trap only between commands or during `wait`. It
# keeps the standard input, and the signals that bash takes from what it puts there.
{opened}(
  trap - INT QUIT
  unset BAREBOAT_SCRIPT
{prelude}  {holder}exec {command}
) <&0 {kept}&
child=$!
{closed}{close}wait "$child"
code=$?
{drain}"""

#: The descriptor from which an engine reads its variables. What an empty pipe always takes is in it at once
#: (a here-string is a pipe, or in bash before 5.1 a file without a name); more is written by a child of this
#: shell, not of the command.
OPENED_SMALL = """\
exec {{sealed}}<<< '' && read -r -u "$sealed" _ || exit 3
printf '%s\\0' \\
  {listed} >> "/proc/self/fd/$sealed"
"""
OPENED = """\
exec {{sealed}}< <(printf '%s\\0' \\
  {listed} 2>/dev/null)
"""

#: After the start of a command whose engine reads its variables from a descriptor.
CLOSED = """\
exec {sealed}<&-
"""

#: Around the command that is started once and writes each rank's output to files.
FOLLOW = """\
# Each rank's output goes to files, and from there to the job's line by line, its number before: what is new
# every 0.2 s, and what is left when the ranks are over. (Of a line with zero bytes only the file has all.)
follow_output() {{
  trap '' TERM INT HUP
  local k lines last over='' rests=()
  while [ -z "$over" ]; do
    read -r -t 0.2 -u 5 || [ "$?" -gt 128 ] || over=1
    for k in "${{!logs[@]}}"; do
      while mapfile -n 1000 -u "${{logs[k]}}" lines && [ "${{#lines[@]}}" -gt 0 ]; do
        lines[0]=${{rests[k]:-}}${{lines[0]}} last=$((${{#lines[@]}} - 1)) rests[k]=
        # The last line may not be whole yet.
        [[ ${{lines[last]}} == *$'\\n' ]] || {{ rests[k]=${{lines[last]}}; unset "lines[last]"; }}
        [ "${{#lines[@]}}" -eq 0 ] || tell "$k" "${{lines[@]}}"
      done
    done
  done
  for k in "${{!logs[@]}}"; do [ -z "${{rests[k]:-}}" ] || tell "$k" "${{rests[k]}}"; done
}}

tell() {{ # $1: of which file, $2…: lines
  local rank=$((BAREBOAT_NODE * {ranks_per_node} + $1 / 2)) to=$(($1 % 2 + 1))
  printf "[rank $rank] %s" "${{@:2}}" >&"$to"
}}

logs=()
set -C # a new file, and no link that a container on another node has put in its place
for ((number = 0; number < {ranks_per_node}; number++)); do
  for log in "$BAREBOAT_RUN_DIR/logs/$((BAREBOAT_NODE * {ranks_per_node} + number))".{{out,err}}; do
    : > "$log" || exit 3
    exec {{opened}}< "$log"
    [ ! -L "$log" ] && [ "$log" -ef "/proc/self/fd/$opened" ] || exit 3
    logs+=("$opened")
  done
done
set +C
# A pipe that nobody writes to: its end says that the ranks are over.
exec 5< <(:)
exec 6> /proc/self/fd/5
follow_output 6>&- &
follower=$!
for opened in 5 "${{logs[@]}}"; do exec {{opened}}<&-; done
"""

#: After it.
FOLLOWED = """\
exec 6>&-
wait "$follower"
"""

#: The job on one node, started rank by rank.
RANKS = """\
# A rank's output is kept, and goes to the job's line by line, its number before. No program is started for
# those that say nothing. (Of its first line bash does not keep zero bytes.)
read_output() {{ # $1: in this file
  trap '' TERM INT HUP
  : > "$1"
  if IFS= read -r line; then
    exec sed -u -e "w $1" -e "s/^/[rank $RANK] /" /dev/fd/7 - 7<<< "$line"
  elif [ -n "$line" ]; then # no end of a line
    printf '%s' "$line" > "$1"
    printf '[rank %s] %s' "$RANK" "$line"
  fi
}}

# One rank: it is told its names.
start_rank() {{ # $1: its number on this node
  trap - INT QUIT
  LOCAL_RANK=$1
  RANK=$((BAREBOAT_NODE * {ranks_per_node} + LOCAL_RANK))
  WORLD_SIZE={world_size} LOCAL_WORLD_SIZE={ranks_per_node}
  MASTER_ADDR=$BAREBOAT_MASTER MASTER_PORT=$BAREBOAT_PORT
{prelude}  local log=$BAREBOAT_CONTROL/logs/$RANK code
  exec 3> >(read_output "$log.out")
  exec 4> >(exec >&2 3>&-; read_output "$log.err")
  BAREBOAT_SCRIPT='' rank_command >&3 2>&4 3>&- 4>&- 6>&-
  code=$?
  exec 3>&- 4>&- 6>&-
  echo "$RANK $code" >> "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE"
  [ "$code" -ne 75 ] || let_save exits {world_size}
  [ "$code" -eq 0 ] || end_run # the others would wait for it for ever
  exit "$code"
}}

rank_command() {{
  {command}
}}

[ -e /dev/fd/0 ] || exec </dev/null
children=()
# A pipe that nobody writes to: its end says that all who read the ranks' output have come to theirs.
exec 5< <(:)
exec 6> /proc/self/fd/5
for ((number = 0; number < {ranks_per_node}; number++)); do
  if [ "$((BAREBOAT_NODE + number))" -eq 0 ]; then
    start_rank 0 <&0 5<&- &
  else
    start_rank "$number" </dev/null 5<&- &
  fi
  children+=("$!")
done
exec 6>&-
code=0
for child in "${{children[@]}}"; do
  wait "$child" || {{ status=$?; [ "$code" -ne 0 ] || code=$status; }}
done
# The last lines; whoever holds a rank's output after its end is not waited for.
read -r -t 1 -u 5
exec 5<&-
"""

FIRST_FAILURE = """\
# The first rank that failed by itself says what went wrong; its exit code is ours.
if [ "$code" -ne 0 ]; then
  failed=$({exits} | grep -v ' 0$')
  first=$(grep -vE ' (129|130|137|143)$' <<< "$failed" | head -n 1)
  read -r rank status <<< "${{first:-$(head -n 1 <<< "$failed")}}"
  if [ -n "${{status:-}}" ]; then
{show}    code=$status
  fi
fi
"""

#: Where no rank was started, a node says what was missing.
CLUSTER_FIRST_END = """\
if [ "$code" -ne 0 ] && [ -z "${status:-}" ]; then
  status=$(cat "$BAREBOAT_CONTROL"/ends.* 2>/dev/null | grep -vE '^(0|129|130|137|143)$' | head -n 1)
  code=${status:-$code}
fi
"""

LAST_OUTPUT = """\
    printf 'bareboat: rank %s ended first, with exit code %s; its last output:\\n' "$rank" "$status" >&2
    cat "$BAREBOAT_CONTROL/logs/$rank".{out,err} 2>/dev/null | tail -n 20 | sed 's/^/  /' >&2
"""

LAST_OUTPUT_OF_RANKS = """\
    printf 'bareboat: rank %s ended first, with exit code %s; its last output:\\n' "$rank" "$status" >&2
    for log in "$BAREBOAT_RUN_DIR/logs/$rank".{out,err}; do
      [ ! -f "$log" ] || [ -L "$log" ] || tail -c 65536 "$log"
    done 2>/dev/null | tail -n 20 | sed 's/^/  /' >&2
"""

END = """\
[ "$code" -eq 0 ] || end_run
exit "$code"
"""

#: Started by Bareboat, this script is the parent of all orphans of the run, marked or not.
END_HERE = """\
left=
if [ "$code" -eq 0 ]; then
  read -r left 2>/dev/null < "/proc/$$/task/$$/children"
fi
[ "$code" -eq 0 ] && [ -z "$left" ] || end_run # what the command left behind ends with the run
exit "$code"
"""

#: The end of a node's part, whose code ends the other nodes' parts.
CLUSTER_NODE_END = """\
echo "$code" >> "$BAREBOAT_CONTROL/over.$BAREBOAT_NODE"
[ "$code" -eq 0 ] || ! {exits} | grep -q ' 75$' ||
  let_save over "$BAREBOAT_NODES"
"""

# ----------------------------------------------------------------------------------------------------
# On a cluster: the first node's part, and every node's.

CLUSTER_ARGUMENTS = """\
BAREBOAT_NODES={nodes}
BAREBOAT_JOB={job_id}
# The scheduler starts this script on the first node, which starts it with --node on every node{or_rank}.
# bash SCRIPT --node|--rank NODE RUN CONTROL MASTER PORT WHAT;  bash SCRIPT --signal NODE RUN NAME
# NODE is a number, or the name of the variable that holds it. No container sees the folder CONTROL; the ranks
# write to another, beside it.
part=--first
case ${{1:-}} in
  --node | --rank)
    part=$1 what=$7 BAREBOAT_NODE=$(($2)) BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4
    BAREBOAT_MASTER=$5 BAREBOAT_PORT=$6 ;;
  --signal) part=$1 BAREBOAT_RUN=$3 ;;
{more}  *)
    BAREBOAT_RUN="${{1:-{run}}}"
    BAREBOAT_CONTROL={folder}/control ;;
esac
[ "$part" = --signal ] || BAREBOAT_RUN_DIR=${{BAREBOAT_CONTROL%/*}}/ranks
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname # what uname -n says, and no program to start
HERE=" on $BAREBOAT_HOST"
"""

CLUSTER_DELIVER = """\
deliver() { # $1: a signal for the run's processes on this node
  local pid caught
  if [ "$1" = TERM ]; then end_run; return; fi
  for pid in $(run_pids); do # one that does not handle it would die of it
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
    (( (0x${caught:-0} >> ($(kill -l "$1") - 1)) & 1 )) && kill -s "$1" "$pid"
  done
}
"""

CLUSTER_SIGNAL = """\
if [ "$part" = --signal ]; then # from the first node
  deliver "$4"
  exit
fi
"""

CLUSTER_WATCH = """\
( # Signals from the first node, by a file: this look once a second ends with the node's part.
  told=0 signals=()
  exec 7<> <(:) # nothing comes from there: to wait for it starts no program every second
  while :; do
    read -r -t 1 -u 7 || [ "$?" -gt 128 ] || sleep 1
    kill -0 "$$" 2>/dev/null || exit
    [ ! -e "$BAREBOAT_CONTROL/signals" ] || mapfile -t signals < "$BAREBOAT_CONTROL/signals"
    while [ "$told" -lt "${#signals[@]}" ]; do
      deliver "${signals[told]}"
      told=$((told + 1))
    done
  done
) < /dev/null > /dev/null 2>&1 &
watch=$!
trap 'echo "$?" >> "$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST"; kill "$watch"' EXIT
"""

CLUSTER_NODE_HEAD = """\
if [ "$part" != --first ]; then
trap 'echo "$?" >> "$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST"' EXIT
"""

CLUSTER_INTERFACE = """\
# The network interface that leads to the first node: the only one with the longest route there, read from the
# kernel without a program. Where there are several, `ip` knows; without it the libraries look by themselves.
interface_by_routes() {
  local address device destination flags mask longest=-1
  [[ $BAREBOAT_MASTER =~ ^([0-9]+)\\.([0-9]+)\\.([0-9]+)\\.([0-9]+)$ ]] || return
  set -- "${BASH_REMATCH[@]}" # the kernel writes the last byte first
  address=$(($5 << 24 | $4 << 16 | $3 << 8 | $2))
  while read -r device destination _ flags _ _ _ mask _; do
    [ "$flags" != Flags ] && (( (16#$flags & 0x201) == 1 )) || continue # up, and not a refusal
    (( (address & 16#$mask) == 16#$destination && 16#$mask >= longest )) || continue
    if (( 16#$mask > longest )); then
      longest=$((16#$mask)) BAREBOAT_INTERFACE=$device
    elif [ "$device" != "$BAREBOAT_INTERFACE" ]; then
      BAREBOAT_INTERFACE=
    fi
  done 2>/dev/null < /proc/net/route
}

BAREBOAT_INTERFACE=
interface_by_routes
if [ -z "$BAREBOAT_INTERFACE" ] && command -v ip >/dev/null; then
  BAREBOAT_INTERFACE=$(ip -o -4 address show to "$BAREBOAT_MASTER" | awk '{ print $2; exit }')
  [ -n "$BAREBOAT_INTERFACE" ] ||
    BAREBOAT_INTERFACE=$(ip -o route get "$BAREBOAT_MASTER" | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p')
fi
"""

CLUSTER_INTERFACE_ALONE = """\
BAREBOAT_INTERFACE=lo
"""

CLUSTER_BEGIN = """\
# From here on: the first node.
[ -d "$BAREBOAT_CONTROL" ] || (umask 077; mkdir -p "$BAREBOAT_CONTROL") || exit 3
printf '%(%s)T %s %s\\n' -1 "$BAREBOAT_HOST" "$BAREBOAT_JOB" >> "$BAREBOAT_CONTROL/starts"
mapfile -t begun < "$BAREBOAT_CONTROL/starts"
starts=${#begun[@]}
if [ "$starts" -gt 1 ]; then
  rm -f "$BAREBOAT_CONTROL"/{exits,ends,over}.* "$BAREBOAT_CONTROL"/{exit_code,signals}
  [ ! -d "$BAREBOAT_CONTROL/logs" ] || mv "$BAREBOAT_CONTROL/logs" "$BAREBOAT_CONTROL/logs.$((starts - 1))"
  # Nothing that containers wrote is believed in a later start, nor a link of theirs followed.
  [ ! -d "$BAREBOAT_RUN_DIR" ] || mv "$BAREBOAT_RUN_DIR" "$BAREBOAT_RUN_DIR.$((starts - 1))"
fi
[ -d "$BAREBOAT_RUN_DIR" ] || (umask 077; mkdir "$BAREBOAT_RUN_DIR") || exit 3
script=$BAREBOAT_CONTROL/job.sh
[ -e "$script" ] || (umask 077; cp "$0" "$script") || exit 3 # it holds values of environment variables
"""

CLUSTER_FIRST = """\
finish() { # $1: exit code; kept in a file, because schedulers forget
  printf '%s %(%s)T\\n' "$1" -1 > "$BAREBOAT_CONTROL/exit_code" # who reads it before the line is there waits
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

pass_on() { # a signal of the scheduler's, for the ranks on all nodes
  everywhere --signal "$BAREBOAT_RUN" "$1"
}

stop() { # $1: exit code
  trap '' TERM INT HUP USR1
  pass_on TERM
  finish "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP
# Before the end of the job's time, or its preemption: time to write a checkpoint.
trap 'interrupted=1; pass_on USR1' USR1

await() { # the exit code of a child, through any number of signals
  local status
  while :; do
    interrupted=
    wait "$1"
    status=$?
    [ -n "$interrupted" ] || return "$status"
  done
}
"""

#: By this the run's processes know each other. Of each start its own: a file that nobody else may read.
CLUSTER_SECRET = """\
# By this the run's processes on different nodes know each other.
(
  umask 077
  rm -f "$BAREBOAT_CONTROL/secret"
  set -C
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > "$BAREBOAT_CONTROL/secret"
) || finish 3
"""

NODE_SECRET = """\
# Not exported: only what the launcher starts is given it.
unset BAREBOAT_SECRET
read -r BAREBOAT_SECRET < "$BAREBOAT_CONTROL/secret" || [ -n "${BAREBOAT_SECRET:-}" ] || exit 3
"""

LOCAL_SECRET = """\
# By this the run's processes know each other. Not exported: only what the launcher starts is given it.
unset BAREBOAT_SECRET
BAREBOAT_SECRET=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n')
"""

#: Where the scheduler has no signal before the end of the job's time.
CLUSTER_WARNING = """\
(
  trap 'kill "$!"; exit' TERM
  sleep {after_s} > /dev/null 2>&1 &
  wait "$!" && kill -s USR1 "$$"
) &
warning=$!
trap 'kill "$warning" 2>/dev/null' EXIT
"""

CLUSTER_MASTER = """\
mapfile -t hosts < <(hosts)
if [ "${#hosts[@]}" -ne "$BAREBOAT_NODES" ]; then
  printf 'bareboat: the job is for %s nodes, and has: %s\\n' "$BAREBOAT_NODES" "${hosts[*]}" >&2
  finish 3
fi
printf '%s\\n' "${hosts[@]}" > "$BAREBOAT_CONTROL/hosts"
# Ranks meet at the first node, by its address: names may not resolve in an image.
BAREBOAT_MASTER=${hosts[0]}
while read -r address _; do
  [[ $address == 127.* ]] || { BAREBOAT_MASTER=$address; break; }
done < <(getent ahostsv4 "${hosts[0]}")
"""

CLUSTER_MASTER_ALONE = """\
BAREBOAT_MASTER=127.0.0.1
"""

PORT = """\
# A port that nobody listens on here; jobs begin to look at different ones. (To read the kernel's table of
# sockets takes 15 ms.)
BAREBOAT_PORT=$((20000 + ${BAREBOAT_JOB//[!0-9]/}0 / 10 % 20000))
while { true < "/dev/tcp/127.0.0.1/$BAREBOAT_PORT" || true < "/dev/tcp/$BAREBOAT_MASTER/$BAREBOAT_PORT"; } \\
  2> /dev/null; do
  BAREBOAT_PORT=$((BAREBOAT_PORT + 1))
done
"""

#: One rank, started by a program that knows its number and has told it in variables of its own.
RANK = """\
# One rank. What it ended with is kept: launchers tell one code for all.
WORLD_SIZE={world_size}
MASTER_ADDR=$BAREBOAT_MASTER MASTER_PORT=$BAREBOAT_PORT
rank_command() {{
{prelude}  {proof}{command}
}}
[ -e /dev/fd/0 ] || exec </dev/null
{keep}{opened}(trap - INT QUIT; unset BAREBOAT_SCRIPT; rank_command) <&0 {kept}&
child=$!
{closed}{close}wait "$child"
code=$?
{drain}{barrier}[ "$what" = proof ] || echo "${{RANK:-?}} $code" >> "$BAREBOAT_CONTROL/exits.$BAREBOAT_HOST"
exit "$code" # the others are ended by the program that started them
"""

#: On this machine: the program starts this script again for every rank.
AT_ONCE_RANK = """\
part=--first
if [ "${1:-}" = --rank ]; then # bash SCRIPT --rank RUN CONTROL FOLDER PORT WHAT
  part=$1 BAREBOAT_RUN=$2 BAREBOAT_CONTROL=$3 BAREBOAT_RUN_DIR=$4 BAREBOAT_PORT=$5 what=$6
  BAREBOAT_SCRIPT=$BAREBOAT_RUN
fi
BAREBOAT_NODE=0 BAREBOAT_MASTER=127.0.0.1 BAREBOAT_INTERFACE=lo BAREBOAT_JOB=$$
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
"""

AT_ONCE_PROGRAM = """\
stop() {{ # $1: exit code; the ranks first, so that they have time to end
  trap '' TERM INT HUP
  end_run
  kill -s TERM "$child" 2>/dev/null
  exit "$1"
}}
child=

script=$0
if [ ! -f "$script" ]; then # given as bash -c "…"
  script=$BAREBOAT_CONTROL/job.sh
  (umask 077; printf '%s\n' "$BASH_EXECUTION_STRING" > "$script") || exit 3
fi
[ -e /dev/fd/0 ] || exec </dev/null

run() {{ # $1: job or proof
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_RUN_DIR" "$BAREBOAT_PORT" "$1"
  {program} bash "$script" --rank "$@" <&0 &
  child=$!
  wait "$child"
}}
"""

#: `end`: bash that ends the job.
PROOF = """\
# Before the first step: do all ranks find each other? A wrong MPI starts N jobs of one rank each. If not, the
# next way to start them is tried, in this allocation, where there is a script for it.
failed=$BAREBOAT_CONTROL/proof.{rung}.log next=$BAREBOAT_CONTROL/rung.{next_rung}.sh
if [ -e "$failed" ] || ! run proof </dev/null >"$BAREBOAT_CONTROL/proof.log" 2>&1; then
  if [ ! -e "$failed" ]; then
    tail -n 20 "$BAREBOAT_CONTROL/proof.log" >&2
    why='the ranks did not find each other'
    grep -q {started} "$BAREBOAT_CONTROL/proof.log" || why={launch}' started no rank'
    [ -e "$next" ] || {{ printf 'bareboat: %s; the job is not started\\n' "$why" >&2; {end} 3; }}
    printf 'bareboat: %s; the next way to start them is tried\\n' "$why" >&2
    mv "$BAREBOAT_CONTROL/proof.log" "$failed"
  fi
  # shellcheck disable=SC1090
  . "$next"
fi
"""

#: At the beginning of the script of a further way to start the ranks, which the one before reads.
RUNG = """\
script=${{BASH_SOURCE[0]}}
printf 'bareboat: the ranks are started by %s\\n' {title} >&2
"""

RANK_PROOF = """\
if [ "$what" = proof ]; then
    echo {started}
    {command}
  fi
  """

MODULES = """\
# The site's software.
command -v module >/dev/null || for file in /etc/profile.d/{{modules,lmod,z00_lmod}}.sh; do
  # shellcheck disable=SC1090
  [ -r "$file" ] && {{ set +u; . "$file"; set -u; break; }}
done
command -v module >/dev/null || {{
  printf 'bareboat: there is no command "module"%s\\n' "$HERE" >&2
  exit 3
}}
module load {modules} || exit 3
"""

CLUSTER_RUN = """\
run() {{ # $1: job or proof
  {start} &
  await "$!"
}}
"""

#: Before it, in the script of a further way to start the ranks: the job begins with the first one.
CLUSTER_AGAIN_FIRST = """\
script=$BAREBOAT_CONTROL/job.sh
"""

CLUSTER_AGAIN = """\
# 75 (EX_TEMPFAIL): the job has saved its state and wants to go on later.
if [ "$code" -eq 75 ]; then
  printf 'bareboat: the job asks to go on later: back into the queue\\n' >&2
  trap '' TERM INT HUP # which the scheduler may send to put it there; it is not the end of the run
  if again > "$BAREBOAT_CONTROL/again"; then
    tail -n 1 "$BAREBOAT_CONTROL/again" >> "$BAREBOAT_CONTROL/agains"
    exit "${AGAIN:-75}"
  fi
fi
"""

#: A node that dies takes the job with it, and the scheduler starts it again: once, as the job may be why.
CLUSTER_LOST = """\
agains=()
[ ! -e "$BAREBOAT_CONTROL/agains" ] || mapfile -t agains < "$BAREBOAT_CONTROL/agains"
if [ "$((starts - ${#agains[@]}))" -gt 2 ]; then
  printf 'bareboat: this job lost its nodes twice; it is not started a third time\\n' >&2
  finish 70
fi
"""

# ----------------------------------------------------------------------------------------------------
# A sweep: one script for all points.

SWEEP_ARGUMENTS = """\
[[ $BAREBOAT_RUN =~ \\.[0-9]+$ ]] || {{
  printf 'bareboat: the script of a sweep runs one of its points\\n  try: bash %s %s\\n' "$0" {example} >&2
  exit 3
}}
"""

#: What the scheduler keeps of a point is not told apart from the other points'.
SWEEP_FIRST = """\
# This point's own folder, with its output and its copy of the script.
(umask 077; mkdir -p "$BAREBOAT_CONTROL") || exit 3
exec >> "${BAREBOAT_CONTROL%/*}/output.log" 2>&1
script=${BAREBOAT_CONTROL%/points/*}/job.sh
[ ! -e "$script" ] || (umask 077; cp "$script" "$BAREBOAT_CONTROL")
"""

SWEEP_RUNGS = """\
(umask 077; cp "${BAREBOAT_CONTROL%/points/*}"/rung.*.sh "$BAREBOAT_CONTROL")
"""

SWEEP_VALUES = """\
# The point's values: a line of the table, below that of the names; bars between, odd bytes as \\0OCTAL.
BAREBOAT_SWEEP_INDEX=${{BAREBOAT_RUN##*.}}
table=${{BAREBOAT_CONTROL-}}
table=${{table%/points/*}}/table
need "$table" 'the table of the sweep' 'bareboat submit, or bareboat run'
IFS='|' read -r {names} < <(sed -n "$((BAREBOAT_SWEEP_INDEX + 2))p" "$table") || {{
  printf 'bareboat: there is no point %s in %s\\n' "$BAREBOAT_SWEEP_INDEX" "$table" >&2
  exit 3
}}
for name in {names}; do
  printf -v "$name" %b "${{!name}}"
done
"""
