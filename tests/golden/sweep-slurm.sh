#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --array=0-5%2
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher ranks, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:36261df2064e.
# It needs bash and the files under "Requirements", but no Bareboat.
set -u

# Every process of this run carries this mark in its environment, even in another session or container. This
# shell itself does not: it got the mark as an argument, and does not export it.
unset BAREBOAT_RUN

# What the plan has decided.
ranks_per_node=2 world_size=4
run_apart=user
sweep_names=(BAREBOAT_SWEEP_LR BAREBOAT_SWEEP_SEED)
world_pauses_s=(2 2 2 2 2 5 5 10 15 15 30 30 60 120 300)

BAREBOAT_NODES=2
BAREBOAT_JOB="${SLURM_ARRAY_JOB_ID-$$}_${SLURM_ARRAY_TASK_ID-}"

# The scheduler starts this script on the first node, which starts it again on every node:
# bash SCRIPT --node|--rank NODE RUN CONTROL MASTER PORT WHAT;  bash SCRIPT --signal NODE RUN CONTROL NAME;
# bash SCRIPT --bring|--leave NODE RUN CONTROL TRIES.
# NODE is a number, or the name of the variable with the number. No container sees the directory CONTROL; the
# ranks write to another one beside it.
part=--first
case ${1:-} in
  --node | --rank)
    part=$1 what=$7 BAREBOAT_NODE=$(($2)) BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4
    BAREBOAT_MASTER=$5 BAREBOAT_PORT=$6
    ;;
  --signal | --bring | --leave)
    part=$1 BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4 what=${5:-1}
    ;;
esac
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname # the output of uname -n, without starting a program
HERE=" on $BAREBOAT_HOST"

if [ "$part" = --first ]; then
  BAREBOAT_RUN="${1:-digits.${SLURM_ARRAY_TASK_ID-}}"
  BAREBOAT_CONTROL=/home/ada/digits/bareboat-runs/digits/points/${BAREBOAT_RUN##*.}/control
fi
BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks
rank_logs=$BAREBOAT_CONTROL/logs

sweep_name=digits
[[ $BAREBOAT_RUN =~ \.[0-9]+$ ]] || {
  printf 'bareboat: the script of a sweep runs one of its points\n' >&2
  printf '  try: bash %s %s\n' "$0" "$sweep_name.0" >&2
  exit 3
}

# A process can lose the mark: by overwriting its environment (setproctitle), or through env -i. So the run's
# processes are those that carry it, all descendants of them or of this script, and all that share an
# enclosure with them which a process cannot leave ($run_apart). The script's own helpers carry this:
export BAREBOAT_SCRIPT=$BAREBOAT_RUN

carriers() { # $1: a variable with its value, as in processes' initial environment
  grep -lszxF "$1" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

is_script() { # $1: a process; whether it is this script, a copy of it, or its part for a node or a rank
  local word words=
  [ "/proc/$1/exe" -ef "/proc/$$/exe" ] || return 1
  while IFS= read -r -d '' word; do
    [ "$word" != "$BAREBOAT_RUN" ] || return 0
    words+=$word$'\n'
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
    for pid in $(marked_pids); do ours[$pid]=1; done
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
  # Processes with the mark first: their starters (mpirun, an engine) would kill them at once.
  signal_to TERM marked_pids
  if gone marked_pids 100; then
    gone run_pids 10 && return 0
    signal_to TERM run_pids
    gone run_pids 20 && return 0
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
  [ -z "$pids" ] || kill -s "$1" $pids 2> /dev/null
}

exits_of_run() { cat "$BAREBOAT_CONTROL"/exits.* 2> /dev/null; }
exits_of_node() { cat "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE" 2> /dev/null; }

deliver() { # $1: a signal for the run's processes on this node
  local pid caught
  if [ "$1" = TERM ]; then
    end_run
    return "$?"
  fi
  # A process without a handler would die of it.
  for pid in $(run_pids); do
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)
    (((0x${caught:-0} >> ($(kill -l "$1") - 1)) & 1)) && kill -s "$1" "$pid"
  done
}

if [ "$part" = --signal ]; then # from the first node
  deliver "$what"
  exit 0 # otherwise Slurm kills this part on the slower nodes
fi

declare -F at_exit > /dev/null || exit_commands=
at_exit() { # $1: a command for the end of this part, after those added before
  exit_commands=${exit_commands:+$exit_commands; }$1
  trap "$exit_commands" EXIT
}

# Whether the ranks are one world, by the connections between their processes.
connections() { # of the run's processes here: RANK END OTHER-END; and the ranks that are here
  local pids processes
  mapfile -t pids < <(run_pids)
  [ "${#pids[@]}" -gt 0 ] || return 1
  processes=("${pids[@]/#//proc/}")
  {
    printf 'own %s\n' "$(readlink /proc/self/ns/net)"
    grep -zsaHE '^RANK=[0-9]{1,9}$' "${processes[@]/%//environ}" | tr '\0' '\n'
    sed -sn '1s/^\([0-9]*\) (.*) . \([0-9]*\) .*/parent \1 \2/p' "${processes[@]/%//stat}"
    find "${processes[@]/%//fd}" -mindepth 1 \( -lname 'socket:*' -o -name 0 \) -printf '%h %l\n'
    find "${processes[@]/%//ns/net}" -printf '%p %l\n'
    ! declare -F shared_places > /dev/null || shared_places
    cat /proc/net/tcp /proc/net/tcp6
  } 2> /dev/null | awk -v unit="$unit" -v only="$((ranks_per_node == 1))" -v seconds="$SECONDS" '
    function entity(pid,  hops) { # the rank that it belongs to; the starter of the ranks is not a rank
      if (pid in above) return "n" unit
      for (; pid in parent && hops < 1000; hops++) {
        if (pid in rank) return rank[pid]
        pid = parent[pid]
      }
      return only ? the_rank : "unknown"
    }
    function address(text) { # an IPv4 address is the same in the table of IPv6
      sub(/^0000000000000000FFFF0000/, "", text)
      return text
    }
    { split($1, part, /[\/:=]/); pid = part[3] }
    $1 == "own" { own = $2 }
    $1 == "parent" { parent[$2] = $3 }
    part[4] == "environ" { the_rank = rank[pid] = part[6] + 0 }
    part[4] == "fd" { readable[pid]; if ($2 ~ /^socket:/) { inode = substr($2, 9) + 0; has[pid, inode] } }
    part[4] == "ns" && $2 != own { elsewhere[pid] }
    $2 == "shared" { shared[pid, $3] }
    $4 == "01" { ends[$10 + 0] = address($2) " " address($3) }
    END {
      for (pid in rank) for (up = parent[pid]; up in parent; up = parent[up]) if (!(up in rank)) above[up]
      for (pid in parent) {
        who = entity(pid)
        here[who]
        if (!(pid in readable) || pid in elsewhere) hidden[who]
      }
      for (who in here) if (who ~ /^[0-9]+$/ && !(who in hidden)) print "seen", who, seconds
      for (pair in has) {
        split(pair, part, SUBSEP)
        if (part[2] in ends && part[1] in parent) print entity(part[1]), ends[part[2]]
      }
      for (pair in shared) {
        split(pair, part, SUBSEP)
        print entity(part[1]), part[2], part[2]
      }
    }'
}

world_groups() { # "one", or a message about the groups of ranks; nothing while they are unknown
  cat "$BAREBOAT_CONTROL"/world/looks.* 2> /dev/null | awk -v size="$world_size" '
    function root(x) { while (up[x] != x) x = up[x]; return x }
    function ranges(list, n, numbers, k, from, text) { # 0 1 2 5 -> 0-2, 5
      n = split(list, numbers, " "); text = ""; from = 1
      for (k = 1; k <= n; k++) if (k == n || numbers[k + 1] != numbers[k] + 1) {
        text = text (text == "" ? "" : ", ") numbers[from] (k > from ? "-" numbers[k] : ""); from = k + 1
      }
      return text
    }
    $1 == "seen" { if (!($2 in first)) first[$2] = $3; last[$2] = $3; next }
    $1 == "unknown" { unknown = 1; next }
    NF == 3 && !(($1, $2, $3) in had) { had[$1, $2, $3]; holders[$2 " " $3] = holders[$2 " " $3] " " $1 }
    END {
      for (pair in holders) {
        split(pair, part, " ")
        n = split(holders[pair], one, " "); m = split(holders[part[2] " " part[1]], other, " ")
        for (k = 1; k <= n; k++) for (l = 1; l <= m; l++) {
          a = one[k]; b = other[l]
          if (!(a in up)) up[a] = a
          if (!(b in up)) up[b] = b
          if (a ~ /^n/ && b ~ /^n/) continue # the launcher on two nodes
          up[root(a)] = root(b)
        }
      }
      for (k = 0; k < size; k++) {
        if (!(k in up)) up[k] = k
        r = root(k)
        if (!(r in list)) order[++count] = r
        list[r] = list[r] " " k
      }
      if (count == 1) { print "one"; exit }
      for (k = 0; k < size; k++) {
        if (!(k in first) || last[k] - first[k] < 8) exit
        if (!seconds || last[k] < seconds) seconds = last[k]
      }
      if (unknown) exit
      if (count == size) text = size " ranks, and no connection between them was seen in the first " \
        seconds " s: each may be a singleton"
      else {
        text = size " ranks, and no connection was seen in the first " seconds " s between"
        for (k = 1; k <= count && k <= 4; k++) text = text (k > 1 ? " and " : " ") ranges(list[order[k]])
        text = text (count > 4 ? " and " count - 4 " more groups" : "") ": they may be " count " worlds"
      }
      print text
    }'
}

watch_world() {
  local pause found
  exec 7<> <(:) # no data comes from there: a wait that starts no program
  for pause in "${world_pauses_s[@]}"; do
    read -r -t "$pause" -u 7 || [ "$?" -gt 128 ] || sleep "$pause"
    kill -0 "$$" 2> /dev/null || return 1
    [ ! -e "$BAREBOAT_CONTROL/world/one" ] || return 1
    connections >> "$BAREBOAT_CONTROL/world/looks.$unit"
    [ "$unit" -eq 0 ] || continue
    found=$(world_groups)
    if [ "$found" = one ]; then
      rm -f "$BAREBOAT_CONTROL/world/apart"
      : > "$BAREBOAT_CONTROL/world/one"
    elif [ -n "$found" ] && [ "$SECONDS" -ge 60 ]; then
      printf '%s\n' "$found" > "$BAREBOAT_CONTROL/world/apart"
    fi
  done
}

start_watching_world() {
  watch_world < /dev/null > /dev/null 2>&1 &
  world_watch=$!
  at_exit "kill $world_watch 2> /dev/null"
}

if [ "$part" != --first ]; then
leave_node() { status=$? && echo "$status" >> "$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST"; }
at_exit leave_node

stop() { # $1: exit code
  trap '' TERM INT HUP
  end_run
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP
trap '' QUIT # Ctrl-\ is for the program, which may continue

need() { # $1: path, $2: what it is, $3: the remedy
  [ -e "$1" ] && return 0
  printf 'bareboat: %s does not exist%s: %s\n  try: %s\n' "$2" "$HERE" "$1" "$3" >&2
  exit 3
}

# Requirements.
need /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 'a layer of the image' 'bareboat capture --fresh'
need /opt/bwrap 'the engine bubblewrap' 'bareboat doctor'
need /home/ada/digits 'the working directory' 'submit from a directory on a file system that all nodes share'
need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'

# The network interface that leads to the first node: the only one with the longest route there, read from the
# kernel without a program. If there are several, `ip` decides; without it the libraries choose.
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

BAREBOAT_INTERFACE=
interface_by_routes
if [ -z "$BAREBOAT_INTERFACE" ] && command -v ip > /dev/null; then
  BAREBOAT_INTERFACE=$(ip -o -4 address show to "$BAREBOAT_MASTER" | awk '{ print $2; exit }')
  [ -n "$BAREBOAT_INTERFACE" ] ||
    BAREBOAT_INTERFACE=$(ip -o route get "$BAREBOAT_MASTER" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
fi

let_save() { # $1: files by prefix, $2: their number of lines when all have saved
  # With a limit: some ranks may not save.
  local deadline=$((SECONDS + 60))
  while [ "$SECONDS" -lt "$deadline" ]; do
    [ "$(cat "$BAREBOAT_CONTROL/$1".* 2> /dev/null | wc -l)" -lt "$2" ] || return 0
    sleep 0.2
  done
}

# The point's values: a line of the table, below the names; separated by bars, special bytes as \0OCTAL.
BAREBOAT_SWEEP_INDEX=${BAREBOAT_RUN##*.}
table=${BAREBOAT_CONTROL-}
table=${table%/points/*}/table
need "$table" 'the table of the sweep' 'bareboat submit, or bareboat run'
IFS='|' read -r "${sweep_names[@]}" < <(sed -n "$((BAREBOAT_SWEEP_INDEX + 2))p" "$table") || {
  printf 'bareboat: no point %s in %s\n' "$BAREBOAT_SWEEP_INDEX" "$table" >&2
  exit 3
}
for name in "${sweep_names[@]}"; do
  printf -v "$name" %b "${!name}"
done

rank_names() {
  unset GLOO_SOCKET_IFNAME
  [ -z "$BAREBOAT_INTERFACE" ] || GLOO_SOCKET_IFNAME=$BAREBOAT_INTERFACE
}

start_sampler() {
  local program=$BAREBOAT_CONTROL/sampler.py python place=$BAREBOAT_CONTROL/usage/$BAREBOAT_HOST
  [ -e "$program" ] || program=${BAREBOAT_CONTROL%/points/*}/sampler.py # of all points of a sweep or a study
  [ -e "$program" ] && python=$(command -v python3) || return 1
  (umask 077 && mkdir -p "${place%/*}" && mkdir "$place") 2> /dev/null || return 0 # by another rank's part
  "$python" -I -S "$program" "$BAREBOAT_RUN" "$$" "$place" < /dev/null > /dev/null 2>&1 &
  at_exit "kill $! 2> /dev/null"
}
start_sampler

unit=$BAREBOAT_NODE
start_watching_world

seal() { # $@: words
  exec {sealed}< <(printf '%s\0' "$@" 2> /dev/null)
}

job_command() {
  rank_names
  seal \
    --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv BAREBOAT_SWEEP_INDEX "$BAREBOAT_SWEEP_INDEX" \
    --setenv BAREBOAT_SWEEP_LR "$BAREBOAT_SWEEP_LR" \
    --setenv BAREBOAT_SWEEP_SEED "$BAREBOAT_SWEEP_SEED" \
    --setenv HOME /home/ada \
    --setenv LANG C.UTF-8 \
    --setenv LOGNAME ada \
    --setenv OMP_NUM_THREADS 1 \
    --setenv PATH /env/bin:/usr/bin \
    --setenv PYTHONNOUSERSITE 1 \
    --setenv TAG 'lr '"$BAREBOAT_SWEEP_LR" \
    --setenv TZ Europe/Rome \
    --setenv USER ada
  passed=()
  for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME; do
    [ -n "${!name+set}" ] || continue
    value=${!name}
    passed+=(--setenv "$name" "$value")
  done
  BAREBOAT_SCRIPT=$BAREBOAT_RUN /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
  --seccomp 197 197< /scratch/ada/store/programs/2262571a73a496c1/full.bpf \
  --bind /scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa / \
  --dev-bind /dev /dev \
  --bind /proc /proc \
  --ro-bind /sys /sys \
  --tmpfs /tmp \
  --tmpfs /var/tmp \
  --tmpfs /run \
  --tmpfs /home/ada \
  --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
  --ro-bind-try /etc/hosts /etc/hosts \
  --dir /home/ada \
  --bind /home/ada/digits /home/ada/digits \
  --ro-bind '/scratch/ada/bareboat/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/home/ada/my digits/.venv' '/home/ada/my digits/.venv' \
  ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
  ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} \
  --remount-ro / \
  --clearenv \
  --args "$sealed" \
  ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
  ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
  ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
  ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
  ${passed[@]+"${passed[@]}"} \
  --chdir /home/ada/digits \
  --die-with-parent \
  -- \
  python train.py --lr="$BAREBOAT_SWEEP_LR" --seed "$BAREBOAT_SWEEP_SEED"
}

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

# One rank, with its variables.
start_rank() { # $1: its number on this node
  trap - INT QUIT
  LOCAL_RANK=$1
  RANK=$((BAREBOAT_NODE * ranks_per_node + LOCAL_RANK))
  WORLD_SIZE=$world_size LOCAL_WORLD_SIZE=$ranks_per_node
  MASTER_ADDR=$BAREBOAT_MASTER MASTER_PORT=$BAREBOAT_PORT
  local log=$rank_logs/$RANK code
  exec 3> >(read_output "$log.out")
  exec 4> >(exec >&2 3>&- && read_output "$log.err")
  BAREBOAT_SCRIPT='' job_command >&3 2>&4 3>&- 4>&- 6>&-
  code=$?
  exec 3>&- 4>&- 6>&-
  echo "$RANK $code" >> "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE"
  [ "$code" -ne 75 ] || let_save exits "$world_size"
  [ "$code" -eq 0 ] || end_run # otherwise the others would wait for it forever
  exit "$code"
}

[ -e /dev/fd/0 ] || exec < /dev/null
children=()
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
code=0
for child in "${children[@]}"; do
  wait "$child" || {
    status=$?
    [ "$code" -ne 0 ] || code=$status
  }
done
# The last lines; processes that hold a rank's output after its end are not waited for.
read -r -t 1 -u 5
exec 5<&-
[ -z "${world_watch:-}" ] || { kill -KILL "$world_watch"; wait "$world_watch"; } 2> /dev/null

echo "$code" >> "$BAREBOAT_CONTROL/over.$BAREBOAT_NODE"
[ "$code" -eq 0 ] || ! exits_of_node | grep -q ' 75$' || let_save over "$BAREBOAT_NODES"

[ "$code" -eq 0 ] || end_run
exit "$code"

fi

# This point's own directory, with its output and its copy of the script.
(umask 077 && mkdir -p "$BAREBOAT_CONTROL") || exit 3
exec >> "${BAREBOAT_CONTROL%/*}/output.log" 2>&1
script=${BAREBOAT_CONTROL%/points/*}/job.sh
[ ! -e "$script" ] || (umask 077 && cp "$script" "$BAREBOAT_CONTROL")

# From here on: the first node.
[ -d "$BAREBOAT_CONTROL" ] || (umask 077 && mkdir -p "$BAREBOAT_CONTROL") || exit 3
printf '%(%s)T %s %s\n' -1 "$BAREBOAT_HOST" "$BAREBOAT_JOB" >> "$BAREBOAT_CONTROL/starts"
# Facts about this node, for `bareboat lock` and `bareboat diff`.
node_facts() {
  local line
  read -r line < /proc/sys/kernel/osrelease && printf 'kernel %s\n' "$line"
  while IFS= read -r line; do
    [[ $line != 'model name'* ]] || { printf 'cpu %s\n' "${line#*: }" && break; }
  done < /proc/cpuinfo
  while IFS= read -r line; do
    [[ $line != PRETTY_NAME=* ]] || printf 'distribution %s\n' "${line#*=}"
  done < /etc/os-release
  read -r line < /proc/meminfo && printf 'memory %s\n' "$line"
  read -r line < /proc/driver/nvidia/version && printf 'nvidia %s\n' "$line"
  printf 'libc %s\n' "$(getconf GNU_LIBC_VERSION)"
}
node_facts > "$BAREBOAT_CONTROL/machine" 2> /dev/null
mapfile -t begun < "$BAREBOAT_CONTROL/starts"
starts=${#begun[@]}
if [ "$starts" -gt 1 ]; then
  rm -f "$BAREBOAT_CONTROL"/{exits,ends,over}.* "$BAREBOAT_CONTROL"/{exit_code,signals}
  [ ! -d "$BAREBOAT_CONTROL/logs" ] || mv "$BAREBOAT_CONTROL/logs" "$BAREBOAT_CONTROL/logs.$((starts - 1))"
  [ ! -d "$BAREBOAT_CONTROL/usage" ] || mv "$BAREBOAT_CONTROL/usage" "$BAREBOAT_CONTROL/usage.$((starts - 1))"
  # A later start trusts nothing that containers wrote, and follows no link of theirs.
  [ ! -d "$BAREBOAT_RUN_DIR" ] || mv "$BAREBOAT_RUN_DIR" "$BAREBOAT_RUN_DIR.$((starts - 1))"
fi
[ -d "$BAREBOAT_RUN_DIR" ] || (umask 077 && mkdir "$BAREBOAT_RUN_DIR") || exit 3
script=$BAREBOAT_CONTROL/job.sh
# It contains values of environment variables.
[ -e "$script" ] || (umask 077 && cp "$0" "$script") || exit 3

# $1: exit code; kept in a file, because schedulers forget it. Readers wait until the line is complete.
finish() {
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

await() { # the exit code of a child, despite any number of signals
  local status
  while :; do
    interrupted=
    wait "$1"
    status=$?
    [ -n "$interrupted" ] || return "$status"
    # If the signal came just when bash had collected the child, bash considers it running, and another `wait`
    # would last until all other children end.
    if ! kill -0 "$1" 2> /dev/null && [[ " $(jobs -rp) " == *[[:space:]]"$1"[[:space:]]* ]]; then
      return "$status"
    fi
  done
}

[ -d "$rank_logs" ] || mkdir "$rank_logs" || exit 3

# Expands "c[01-03,07],x9". scontrol, which first reads the site's configuration, is used only for many nodes
# and for other forms of names.
hosts() {
  local rest=$SLURM_JOB_NODELIST prefix range first number found=()
  while [ "$BAREBOAT_NODES" -le 64 ] && [[ $rest =~ ^([^][,]+)(\[([0-9,-]+)\])?(,|$) ]]; do
    rest=${rest:${#BASH_REMATCH[0]}} prefix=${BASH_REMATCH[1]}
    [ -n "${BASH_REMATCH[2]}" ] || found+=("$prefix")
    for range in ${BASH_REMATCH[3]//,/ }; do
      first=${range%-*}
      for ((number = 10#$first; number <= 10#${range#*-}; number++)); do
        printf -v "found[${#found[@]}]" '%s%0*d' "$prefix" "${#first}" "$number"
      done
    done
  done
  if [ -z "$rest" ]; then printf '%s\n' "${found[@]}"; else scontrol show hostnames "$SLURM_JOB_NODELIST"; fi
}

# One task per node, with all of the job's resources there. --overlap: a signal must get through while the
# job's own step uses everything. --mpi=none: these are not ranks.
on_each_node() {
  local script=$1 how=$2
  shift 2
  srun --nodes="$BAREBOAT_NODES" --ntasks="$BAREBOAT_NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
    --overlap --mpi=none bash "$script" "$how" SLURM_NODEID "$@"
}

# Not SLURM_JOB_ID: for an element of an array that is the ID of the whole array.
again() { scontrol requeue "$BAREBOAT_JOB" && echo "$BAREBOAT_JOB"; }

agains=()
[ ! -e "$BAREBOAT_CONTROL/agains" ] || mapfile -t agains < "$BAREBOAT_CONTROL/agains"
if [ "$((starts - ${#agains[@]}))" -gt 2 ]; then
  printf 'bareboat: this job lost its nodes twice; it is not started a third time\n' >&2
  finish 70
fi

rm -rf "$BAREBOAT_CONTROL/world" # of an earlier start
mkdir "$BAREBOAT_CONTROL/world" || exit 3

mapfile -t hosts < <(hosts)
if [ "${#hosts[@]}" -ne "$BAREBOAT_NODES" ]; then
  printf 'bareboat: the job requires %s nodes but has: %s\n' "$BAREBOAT_NODES" "${hosts[*]}" >&2
  finish 3
fi
printf '%s\n' "${hosts[@]}" > "$BAREBOAT_CONTROL/hosts"
# Ranks connect to the first node by its address: names may not resolve in an image.
BAREBOAT_MASTER=${hosts[0]}
while read -r address _; do
  if [[ $address != 127.* ]]; then
    BAREBOAT_MASTER=$address
    break
  fi
done < <(getent ahostsv4 "${hosts[0]}")

# A port without a listener; jobs start the search at different ones. (Reading the kernel's table of sockets
# takes 15 ms.)
BAREBOAT_PORT=$((20000 + ${BAREBOAT_JOB//[!0-9]/}0 / 10 % 20000))
while { true < "/dev/tcp/127.0.0.1/$BAREBOAT_PORT" || true < "/dev/tcp/$BAREBOAT_MASTER/$BAREBOAT_PORT"; } \
  2> /dev/null; do
  BAREBOAT_PORT=$((BAREBOAT_PORT + 1))
done

run() { # $1: job
  everywhere --node "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "$1" &
  await "$!"
}

run job
code=$?

end_files=over end_count=2
all_ended() { # another node's files may appear late, unless something changes in their directory
  local looks
  for ((looks = 0; looks < 300; looks++)); do
    [ "$(cat "$BAREBOAT_CONTROL/$end_files".* 2> /dev/null | wc -l)" -lt "$end_count" ] || return 0
    : > "$BAREBOAT_CONTROL/look" && rm "$BAREBOAT_CONTROL/look"
    sleep 0.2
  done
  return 1
}

if [ "$code" -eq 0 ] && ! all_ended; then
  printf 'bareboat: a node was lost: not all ranks have ended\n' >&2
  code=70
fi

if [ "$code" -eq 0 ] && [ ! -e "$BAREBOAT_CONTROL/world/one" ]; then
  worlds=$(world_groups)
  case $worlds in
    '') ;;
    one) rm -f "$BAREBOAT_CONTROL/world/apart" ;;
    *)
      printf '%s\n' "$worlds" > "$BAREBOAT_CONTROL/world/apart"
      printf 'bareboat: WARNING: %s\n' "$worlds" >&2
      printf '  try: compare the world size that the program prints\n' >&2
      ;;
  esac
fi

# The first rank that did not end by a signal shows the cause; its exit code is the job's.
rank='' status=''
if [ "$code" -ne 0 ]; then
  failed=$(exits_of_run | grep -v ' 0$')
  first=$(grep -vE ' (129|130|137|143)$' <<< "$failed" | head -n 1)
  read -r rank status <<< "${first:-$(head -n 1 <<< "$failed")}"
  code=${status:-$code}
fi

if [ -n "$status" ]; then
  printf 'bareboat: rank %s ended first, with exit code %s; its last output:\n' "$rank" "$status" >&2
  for log in "$rank_logs/$rank".{out,err}; do
    [ ! -f "$log" ] || [ -L "$log" ] || tail -c 65536 "$log"
  done 2> /dev/null | tail -n 20 | sed 's/^/  /' >&2
fi

# 75 (EX_TEMPFAIL): the job has saved its state and continues later.
if [ "$code" -eq 75 ]; then
  printf 'bareboat: the job requests a restart: requeueing it\n' >&2
  trap '' TERM INT HUP # the scheduler may send them to requeue it; they do not end the run
  if again "$@" > "$BAREBOAT_CONTROL/again"; then
    tail -n 1 "$BAREBOAT_CONTROL/again" >> "$BAREBOAT_CONTROL/agains"
    exit "${AGAIN:-75}"
  fi
fi

finish "$code"
