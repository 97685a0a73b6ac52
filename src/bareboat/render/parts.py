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

CLUSTER_NODE_HEAD = """\
if [ "$part" != --first ]; then
trap 'echo "$?" >> "$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST"' EXIT
"""

CLUSTER_INTERFACE_ALONE = """\
BAREBOAT_INTERFACE=lo
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

CLUSTER_MASTER_ALONE = """\
BAREBOAT_MASTER=127.0.0.1
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

# ----------------------------------------------------------------------------------------------------
# A sweep: one script for all points.

SWEEP_ARGUMENTS = """\
[[ $BAREBOAT_RUN =~ \\.[0-9]+$ ]] || {{
  printf 'bareboat: the script of a sweep runs one of its points\\n  try: bash %s %s\\n' "$0" {example} >&2
  exit 3
}}
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
