#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher mpirun, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:e689162becb1.
# It needs bash and the files under "Requirements", but no Bareboat.
set -u

# Every process of this run carries this mark in its environment, even in another session or container. This
# shell itself does not: it got the mark as an argument, and does not export it.
unset BAREBOAT_RUN

# What the plan has decided.
ranks_per_node=2 world_size=4
run_apart=user
rung=1 launch='mpirun (ORTE) 4.1.4' rank_says=bareboat-rank
quiet_limit_s=600 look_s=10 units=4 unit_ranks=1 mixed_output='' by_lines=1 py_spy=/opt/tools/py-spy
world_pauses_s=(2 2 2 2 2 5 5 10 15 15 30 30 60 120 300)

BAREBOAT_NODES=2
BAREBOAT_JOB="${SLURM_JOB_ID:-$$}"

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
  BAREBOAT_RUN="${1:-digits-$BAREBOAT_JOB}"
  BAREBOAT_CONTROL=/home/ada/digits/bareboat-runs/digits-$BAREBOAT_JOB/control
fi
BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks
rank_logs=

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

# The watchdog: the run hangs if no rank prints a line or reports a step for $quiet_limit_s seconds.
silence=$BAREBOAT_CONTROL/watch stacks=$BAREBOAT_CONTROL/stacks

count() { # $1: number of units with this file
  local found=("$silence/$1".*)
  if [ -e "${found[0]}" ]; then echo "${#found[@]}"; else echo 0; fi
}

ranks_here() { # the ranks of this unit
  local k
  for ((k = 0; k < unit_ranks; k++)); do echo "$((unit * unit_ranks + k))"; done
}

signs() { # of life: the files with the output and reports of the ranks here, which change
  local rank log
  for rank in $(ranks_here); do
    log=${rank_logs:+$rank_logs/$rank}
    stat -c '%n %s %y' "${log:-$silence/$unit}".{out,err} "$BAREBOAT_RUN_DIR/progress/$rank" 2> /dev/null
  done
}

rank_of() { # $1: a process of the run; nothing for launchers, which are not ranks
  local rank
  rank=$(tr '\0' '\n' < "/proc/$1/environ" 2> /dev/null | sed -n 's/^RANK=\([0-9]*\)$/\1/p' | tail -n 1)
  [ "$world_size" -gt 1 ] || rank=0
  [ -z "$rank" ] || [ "$((rank / unit_ranks))" -ne "$unit" ] || echo "$rank"
}

is_python() {
  grep -qs python "/proc/$1/maps"
}

find_py_spy() {
  local found
  for found in "$py_spy" "$(command -v py-spy)"; do
    [ -x "$found" ] && "$found" --version > /dev/null 2>&1 && echo "$found" && return 0
  done
}

keep_stacks() { # the stacks of every rank here; reading them does not disturb the ranks
  local pid rank spy
  mkdir -p "$stacks"
  for rank in $(ranks_here); do : > "$stacks/$rank"; done
  spy=$(find_py_spy)
  for pid in $(run_pids | sort -n); do
    rank=$(rank_of "$pid")
    [ -n "$rank" ] || continue
    {
      printf '# process %s on %s: %s\n' "$pid" "$BAREBOAT_HOST" \
        "$(tr '\0\n' '  ' < "/proc/$pid/cmdline" 2> /dev/null | cut -c 1-200)"
      # Without stopping it: it does not move anyway, and other programs cannot stop PRoot's children.
      [ -z "$spy" ] || ! is_python "$pid" ||
        timeout 15 "$spy" dump --nonblocking --full-filenames --pid "$pid" 2>&1 | sed '/^Stack backtrace/,$d'
      printf '# state %s; in the kernel: %s\n\n' \
        "$(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)" \
        "$(cat "/proc/$pid/wchan" 2> /dev/null)"
    } >> "$stacks/$rank"
  done
}

ask_python() { # ranks whose stack could not be read print it themselves and end (faulthandler)
  local dying='Fatal Python error: Aborted' shared=/dev/null
  local pid rank main=() asked=() caught file log deadline
  for pid in $(run_pids | sort -n); do
    rank=$(rank_of "$pid")
    if [ -z "$rank" ] || [ -n "${main[rank]:-}" ] || ! is_python "$pid"; then continue; fi
    main[rank]=$pid
    ! grep -qs '^Thread ' "$stacks/$rank" || continue
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)
    (((0x${caught:-0} >> 5) & 1)) && asked[rank]=$pid
  done
  # The end of one rank is an error in the others, at once: so first stop all of them, on all nodes; when they
  # continue, they print.
  [ "${#asked[@]}" -eq 0 ] || kill -s STOP "${asked[@]}" 2> /dev/null
  : > "$silence/stopped.$unit"
  [ "${#asked[@]}" -gt 0 ] || return 1
  wait_for stopped
  kill -s ABRT "${asked[@]}" 2> /dev/null
  kill -s CONT "${asked[@]}" 2> /dev/null
  deadline=$((SECONDS + 5))
  # In mpirun's output the rank of a line is unknown.
  [ -n "$mixed_output" ] || shared=$silence/$unit.err
  for rank in "${!asked[@]}"; do
    log=${rank_logs:+$rank_logs/$rank.err}
    while :; do
      file=$(find "${log:-$shared}" -maxdepth 0 -type f -size -65536k \
        -exec grep -laF "$dying" {} + 2> /dev/null)
      [ -n "$file" ] && ! kill -0 "${asked[rank]}" 2> /dev/null && break
      [ "$SECONDS" -lt "$deadline" ] || break
      sleep 0.1
    done
    [ -z "$file" ] || tail -c 1048576 "$file" | sed -n "/$dying/,\$p" >> "$stacks/$rank"
  done
}

where_it_stands() { # $1: a rank's stacks; prints its innermost function and line of the user's code
  awk '
    function base(path) { sub(/.*\//, "", path); return path }
    function frame(name, file, line) {
      if (closed) return
      if (inner == "") { inner = name; inner_at = base(file) ":" line }
      if (own != "" || file ~ /(site|dist)-packages\/|\/lib(64)?\/python[0-9]|^</) return
      own = base(file) ":" line
    }
    /^# state / {
      if (inner != "") closed = 1
      waits = $0; sub(/.*kernel: */, "", waits)
      # do_wait: a shell around the relevant process
      if ((first == "" || first == "do_wait") && waits !~ /^0?$/) first = waits
    }
    /^Process [0-9]+:/ { pid = $2 + 0 }
    /^Thread / && !closed && !main && (/"MainThread"$/ || $2 == pid) {
      inner = own = ""; other = 0; main = 1; next
    }
    /^Current thread / { inner = own = ""; closed = 0; other = 0; next }
    /^Thread /         { if (inner != "" || main) other = 1; next }
    other              { next }
    /^    [^ ].* \(.*\)$/ {
      text = substr($0, 5); at = index(text, " (")
      name = substr(text, 1, at - 1); file = substr(text, at + 2, length(text) - at - 2)
      line = "?"
      if (file ~ /:[0-9]+$/) { line = file; sub(/.*:/, "", line); sub(/:[0-9]+$/, "", file) }
      frame(name, file, line)
    }
    /^  File ".*", line [0-9?]+ in / {
      text = substr($0, 9); line = text; sub(/.*", line /, "", line); name = line
      sub(/ in .*/, "", line); sub(/^[0-9?]+ in /, "", name); sub(/", line [0-9?]+ in .*/, "", text)
      frame(name, text, line)
    }
    END {
      if (inner != "") where = inner " (" (own != "" ? own : inner_at) ")"
      else if (first != "") where = first " (in the kernel)"
      else where = "an unknown place"
      gsub(/[[:cntrl:]]/, "?", where)
      print where
    }' "$1"
}

compare() { # lines RANK NODE WHERE: print where most ranks are, and which ranks are elsewhere
  sort -n | awk '
    function ranks(list, n, numbers, k, from, text) { # 0 1 2 5 -> 0-2, 5
      n = split(list, numbers, " "); text = ""; from = 1
      for (k = 1; k <= n; k++) if (k == n || numbers[k + 1] != numbers[k] + 1) {
        text = text (text == "" ? "" : ", ") numbers[from] (k > from ? "-" numbers[k] : ""); from = k + 1
      }
      return (n > 1 ? "ranks " : "rank ") text
    }
    function nodes(list, n, names, seen, k, text) {
      n = split(list, names, " "); text = ""
      for (k = 1; k <= n; k++) if (!(names[k] in seen)) { seen[names[k]]; text = text " " names[k] }
      n = split(text, names, " ")
      return n > 3 ? n " nodes" : names[1] (n > 1 ? ", " names[2] : "") (n > 2 ? ", " names[3] : "")
    }
    {
      total++; rank = $1; node = $2; where = $0; sub(/^[^ ]* [^ ]* /, "", where)
      if (!(where in size)) order[++groups] = where
      size[where]++; who[where] = who[where] " " rank; on[where] = on[where] " " node
      if (size[where] > size[most]) most = where
    }
    END {
      if (!total) exit
      if (groups == 1) print (total > 1 ? "all " total " ranks are" : "the rank is") " in " most
      if (groups == 1) exit
      if (size[most] * 2 > total) print size[most] " of " total " ranks are in " most
      else most = "" # no majority: no rank is singled out
      for (k = 1; k <= groups; k++) if (order[k] != most) {
        if (++told > 8) { print groups - k + 1 " more places"; exit }
        where = order[k]
        print ranks(who[where]) " on " nodes(on[where]) (size[where] > 1 ? " are" : " is") " in " where
      }
    }'
}

wait_for() { # until all units have the file $1
  local attempt
  for attempt in {1..150}; do
    [ "$(count "$1")" -lt "$units" ] || return 0
    sleep 0.2
  done
}

give_up() { # the run hangs; keep what can be learned from the ranks here, and end them with the others
  local rank
  ask_python
  for rank in $(ranks_here); do
    printf '%s %s %s\n' "$rank" "$BAREBOAT_HOST" "$(where_it_stands "$stacks/$rank")"
  done > "$stacks/of.$unit"
  : > "$silence/over.$unit"
  wait_for over
  end_run
}

judge() { # by the first unit, while it is quiet; when all are, they keep the stacks, and must still be quiet
  if [ "$(count quiet)" -lt "$units" ]; then
    asked_for_s=0
    rm -f "$silence/asked"
    return 0
  fi
  : > "$silence/asked"
  asked_for_s=$((asked_for_s + look_s))
  if [ "$(count stacks)" -ge "$units" ] || [ "$asked_for_s" -gt "$((60 + look_s))" ]; then
    : > "$silence/verdict"
  fi
}

watch_over() { # Counts polls, not the clock: a job that its scheduler suspends does not hang.
  local before=none now quiet_s=0 told='' kept='' asked_for_s=0
  trap 'kill "$!" 2>/dev/null; exit' TERM
  while
    sleep "$look_s" &
    wait "$!"
  do
    kill -0 "$$" 2> /dev/null || return 1
    if [ -e "$silence/verdict" ]; then
      give_up
      return "$?"
    fi
    now=$(signs)
    if [ "$now" != "$before" ]; then
      before=$now quiet_s=0
      [ -z "$told$kept" ] || rm -f "$silence/quiet.$unit" "$silence/stacks.$unit"
      told='' kept=''
      continue
    fi
    quiet_s=$((quiet_s + look_s))
    [ "$quiet_s" -ge "$quiet_limit_s" ] || continue
    [ -n "$told" ] || : > "$silence/quiet.$unit"
    told=1
    [ "$unit" -ne 0 ] || judge
    if [ -z "$kept" ] && [ -e "$silence/asked" ]; then
      keep_stacks
      [ "$(signs)" = "$before" ] || continue
      : > "$silence/stacks.$unit"
      kept=1
    fi
  done
}

start_watchdog() {
  watch_over < /dev/null > /dev/null 2>&1 &
  watchdog=$!
  at_exit "kill $watchdog 2> /dev/null"
}

tell_hang() {
  find "$stacks" -name 'of.*' -exec cat {} + | compare > "$stacks/summary"
  printf 'bareboat: no rank has printed or reported anything for %s s: the run hangs and is terminated\n' \
    "$quiet_limit_s" >&2
  sed 's/^/bareboat:   /' "$stacks/summary" >&2
  printf 'bareboat: the stacks of all ranks are in %s\n' "$stacks" >&2
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

shared_places() {
  grep -lsE '/libmpi[^/]*[.]so' "${processes[@]/%//maps}" | sed 's/$/ shared mpi/'
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

rank_names() {
  RANK=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}} LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}}
  LOCAL_WORLD_SIZE=2
  unset LD_LIBRARY_PATH OMPI_LIBDIR_LOC OMPI_MCA_btl_vader_single_copy_mechanism OMPI_MCA_mca_base_component_path OPAL_PREFIX PMIX_INSTALL_PREFIX PMIX_MCA_gds PMIX_MCA_psec PMIX_PREFIX PRTE_PREFIX
}

start_sampler() {
  local program=$BAREBOAT_CONTROL/sampler.py python place=$BAREBOAT_CONTROL/usage/$BAREBOAT_HOST
  [ -e "$program" ] || program=${BAREBOAT_CONTROL%/points/*}/sampler.py # of all points of a sweep or a study
  [ -e "$program" ] && python=$(command -v python3) || return 1
  (umask 077 && mkdir -p "${place%/*}" && mkdir "$place") 2> /dev/null || return 0 # by another rank's part
  "$python" -I -S "$program" "$BAREBOAT_RUN" "$$" "$place" < /dev/null > /dev/null 2>&1 &
  at_exit "kill $! 2> /dev/null"
}
[ "$what" = check ] || start_sampler

unit=$(rank_names; echo "${RANK:-0}")
[ "$what" = check ] || start_watchdog

read -r unit local_rank < <(rank_names; echo "${RANK:-0} ${LOCAL_RANK:-0}")
[ "$what" = check ] || [ "$local_rank" -ne 0 ] || start_watching_world

seal() { # $@: words. (A here-string is a pipe, or in bash before 5.1 an unnamed file.)
  exec {sealed}<<< '' && read -r -u "$sealed" _ || exit 3
  printf '%s\0' "$@" >> "/proc/self/fd/$sealed"
}

job_command() {
  exec >&3 2>&4 3>&- 4>&-
  rank_names
  passed=()
  for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME "${!PMIX_@}" "${!PMI_@}" "${!PMI2_@}" "${!OMPI_@}" "${!PRTE_@}" "${!SLURM_@}" "${!MPI_LOCAL@}" "${!HYDI_@}" "${!MPIEXEC_@}"; do
    [ -n "${!name+set}" ] || continue
    value=${!name}
    passed+=(--setenv "$name" "$value")
  done
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
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
  python digits.py --epochs 40
}

check_command() {
  exec >&3 2>&4 3>&- 4>&-
  rank_names
  echo "$rank_says"
  passed=()
  for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME "${!PMIX_@}" "${!PMI_@}" "${!PMI2_@}" "${!OMPI_@}" "${!PRTE_@}" "${!SLURM_@}" "${!MPI_LOCAL@}" "${!HYDI_@}" "${!MPIEXEC_@}"; do
    [ -n "${!name+set}" ] || continue
    value=${!name}
    passed+=(--setenv "$name" "$value")
  done
  exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
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
  /env/bin/python -c 'import sys
if sys.path[:1] == [""]:
    sys.path.append(sys.path.pop(0))

"""The MPI check: whether N started ranks are one world of N. A program: one file without dependencies, for
the Python 3.6 or newer of any image.

    python check_program.py --size 2 [--timeout 60] [--library /path/libmpi.so.40] [--tell NAME=VALUE]…

NAME=VALUE: variables with which the library reports its transport to other nodes; one rank per node sets
them. Every rank prints one line, `bareboat-mpi-check {"rank": 0, "size": 2, …}`, and exits with 0 when the
world has the expected size and a message of a mebibyte reached all ranks. It exits with 3 when the world has
another size: the silent failure, in which every rank is a singleton, trains a model of its own and exits with
0. With 4 when MPI fails, is not installed, or does not work with the installed mpi4py; with 1 when it hangs.
"""

import argparse
import array
import ctypes
import faulthandler
import importlib.util
import json
import os
import sys

RIGHT, WRONG_SIZE, BROKEN = 0, 3, 4
MARK = "bareboat-mpi-check "

#: Large enough for the transport of large messages: single-copy between processes, rendezvous on a network.
_WORDS = 2**18

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Measured = tuple[int, int, int, str, str]


def main(arguments: "list[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(description="check that the ranks are one world")
    parser.add_argument("--size", type=int, required=True, help="how many ranks were started")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds until a hang is called one")
    parser.add_argument("--library", help="the libmpi to load; otherwise mpi4py'"'"'s, or what the loader finds")
    parser.add_argument("--tell", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(arguments)
    if _speaks_for_node():
        # Before the library is loaded: UCX reads its settings then.
        os.environ.update(pair.split("=", 1) for pair in options.tell)
    # In C and without Python'"'"'s lock: it also ends a rank that spins in MPI_Init.
    faulthandler.dump_traceback_later(options.timeout, exit=True)
    try:
        rank, size, total, library, way = _measure(options.library)
    except Exception as error:
        _say(error=str(error))
        sys.stderr.write(f"bareboat: MPI cannot be used: {error}\n")
        return BROKEN
    finally:
        faulthandler.cancel_dump_traceback_later()
    _say(rank=rank, size=size, host=os.uname().nodename, library=library, way=way)
    if size != options.size:
        sys.stderr.write(wrong_size(size, options.size, library) + "\n")
        return WRONG_SIZE
    if total != size * (size + 1) // 2:
        sys.stderr.write(f"bareboat: a sum over the ranks gave {total}: the messages are not right\n")
        return BROKEN
    return RIGHT


def _speaks_for_node() -> bool:
    """Whether this rank reports for its node, according to the launchers'"'"' local ranks: thousands of ranks
    would all print the same."""
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    return next((os.environ[name] for name in names if os.environ.get(name)), "0") == "0"


def wrong_size(size: int, wanted: int, library: str) -> str:
    what = f"{wanted} ranks were started, and each is alone" if size == 1 else f"{wanted} ranks were started"
    return (
        f"bareboat: the MPI world has size {size}, not {wanted}: {what}. "
        f"Their launcher does not support {library}."
    )


def _say(**facts: "Any") -> None:
    # One write: the lines of several ranks must not mix.
    sys.stdout.flush()
    os.write(1, (MARK + json.dumps(facts, sort_keys=True) + "\n").encode())


def _measure(path: "str | None") -> "Measured":
    """Rank, size, the sum of rank + 1 over a mebibyte, the library'"'"'s version text, and the interface used."""
    found = None if path else importlib.util.find_spec("mpi4py")
    if found is not None and found.has_location:  # not just a directory of that name
        return _by_mpi4py(_mpi4py())
    return _by_ctypes(_load(path))


def _mpi4py() -> "Any":
    """mpi4py'"'"'s MPI. If it is installed, the job imports it: a check by other means would not test it."""
    try:
        from mpi4py import MPI
    except Exception as error:  # mpi4py'"'"'s wheels, which search for libmpi themselves, raise RuntimeError
        said = " ".join(str(error).split())
        raise RuntimeError(
            f"mpi4py is installed, but cannot be imported: {said}. Either its libmpi is not installed, "
            "or it was built for another one; try: python -m pip install --force-reinstall "
            "--no-binary=mpi4py mpi4py, or uninstall it, if nothing imports it"
        ) from error
    return MPI


def _by_mpi4py(MPI: "Any") -> "Measured":
    world = MPI.COMM_WORLD
    given = array.array("i", [world.Get_rank() + 1]) * _WORDS
    taken = array.array("i", [0]) * _WORDS
    world.Allreduce([given, MPI.INT], [taken, MPI.INT])
    library = MPI.Get_library_version()
    found = world.Get_rank(), world.Get_size(), taken[-1], _shortened(library), "mpi4py"
    MPI.Finalize()
    return found


def _load(path: "str | None") -> ctypes.CDLL:
    names = [path] if path else ["libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"]
    reasons = []
    for name in names:
        try:
            # OpenMPI'"'"'s plugins need its symbols.
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            reasons.append(str(error))
    raise RuntimeError("no libmpi can be loaded: " + "; ".join(reasons))


def _by_ctypes(mpi: ctypes.CDLL) -> "Measured":
    """OpenMPI'"'"'s handles are addresses of exported variables; those of MPICH'"'"'s kind are numbers (mpi.h)."""
    if hasattr(mpi, "ompi_mpi_comm_world"):

        def handle(name: str) -> "Any":
            return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))

        handles = [handle(name) for name in ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum")]
    else:
        handles = [ctypes.c_int(number) for number in (0x44000000, 0x4C000405, 0x58000003)]
    world, integer, plus = handles

    def call(name: str, *values: "Any") -> None:
        code = getattr(mpi, name)(*values)
        if code:
            raise RuntimeError(f"{name} returned {code}")

    call("MPI_Init", None, None)
    rank, size, length = ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_int(0)
    call("MPI_Comm_rank", world, ctypes.byref(rank))
    call("MPI_Comm_size", world, ctypes.byref(size))
    given = (ctypes.c_int * _WORDS).from_buffer(array.array("i", [rank.value + 1]) * _WORDS)
    taken = (ctypes.c_int * _WORDS)()
    call("MPI_Allreduce", given, taken, ctypes.c_int(_WORDS), integer, plus, world)
    text = ctypes.create_string_buffer(65536)
    call("MPI_Get_library_version", text, ctypes.byref(length))
    call("MPI_Finalize")
    return (
        rank.value,
        size.value,
        taken[_WORDS - 1],
        _shortened(text.value.decode("utf-8", "replace")),
        "ctypes",
    )


def _shortened(library: str) -> str:
    return " ".join(library.split(",")[0].split("\n")[0].split())


if __name__ == "__main__":
    sys.exit(main())
' --size 4 --timeout 120 --tell OMPI_MCA_btl_base_verbose=1 --tell OMPI_MCA_mtl_base_verbose=1 --tell OMPI_MCA_pml_base_verbose=10 --tell UCX_LOG_LEVEL=info
}

[ -e /dev/fd/0 ] || exec < /dev/null

# In the background, because bash runs a trap only between commands or during `wait`. It keeps the standard
# input, and the signals that bash ignores in background commands.
start_command() { # $1: job or check
  (
    trap - INT QUIT
    unset BAREBOAT_SCRIPT
    "$1_command"
  ) <&0 &
  child=$!
}

WORLD_SIZE=$world_size MASTER_ADDR=$BAREBOAT_MASTER MASTER_PORT=$BAREBOAT_PORT
keep_output "$silence/$unit"
seal \
  --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
  --setenv HOME /home/ada \
  --setenv LANG C.UTF-8 \
  --setenv LOGNAME ada \
  --setenv OMPI_MCA_btl_vader_single_copy_mechanism none \
  --setenv OMP_NUM_THREADS 1 \
  --setenv PATH /env/bin:/usr/bin \
  --setenv PMIX_MCA_gds hash \
  --setenv PMIX_MCA_psec native \
  --setenv PYTHONFAULTHANDLER 1 \
  --setenv PYTHONNOUSERSITE 1 \
  --setenv PYTHONUNBUFFERED 1 \
  --setenv TZ Europe/Rome \
  --setenv USER ada
start_command "$what"
exec {sealed}<&-
exec 3>&- 4>&-
wait "$child"
code=$?
output_kept
[ ! -e "$silence/verdict" ] || wait_for over
[ -z "${world_watch:-}" ] || { kill -KILL "$world_watch"; wait "$world_watch"; } 2> /dev/null
[ "$what" = check ] || (rank_names; echo "${RANK:-?} $code") >> "$BAREBOAT_CONTROL/exits.$BAREBOAT_HOST"
exit "$code"

[ "$code" -eq 0 ] || end_run
exit "$code"

fi

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

rm -f "$silence"/{asked,verdict,quiet.*,stacks.*,stopped.*,over.*}
[ ! -d "$stacks" ] || mv "$stacks" "$stacks.$((${starts:-2} - 1))" # of an earlier start
mkdir -p "$silence" "$BAREBOAT_RUN_DIR/progress" || exit 3

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

program() { # starts the ranks
  exec /usr/bin/mpirun -n 4 --map-by ppr:2:node --bind-to none --oversubscribe "$@"
}

run() { # $1: job or check
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "$1"
  program bash "$script" --rank 0 "$@" &
  await "$!"
}

# Before the first step: do all ranks find each other? A wrong MPI starts N jobs of one rank each. If not, the
# next launcher is tried in this allocation if there is a script for it. The runs of a study are checked once.
failed=$BAREBOAT_CONTROL/mpi_check.$rung.log next=$BAREBOAT_CONTROL/rung.$((rung + 1)).sh
if [ -e "$failed" ] || ! { [ -e "$BAREBOAT_CONTROL/checked" ] ||
  run check < /dev/null > "$BAREBOAT_CONTROL/mpi_check.log" 2>&1; }; then
  if [ ! -e "$failed" ]; then
    tail -n 20 "$BAREBOAT_CONTROL/mpi_check.log" >&2
    why='the ranks did not find each other'
    grep -q "$rank_says" "$BAREBOAT_CONTROL/mpi_check.log" || why="$launch"' started no rank'
    [ -e "$next" ] || {
      printf 'bareboat: %s; the job is not started\n' "$why" >&2
      finish 3
    }
    printf 'bareboat: %s; trying the next launcher\n' "$why" >&2
    mv "$BAREBOAT_CONTROL/mpi_check.log" "$failed"
  fi
  # shellcheck disable=SC1090
  . "$next"
fi

run job
code=$?

end_files=exits end_count=4
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

if [ -e "$silence/verdict" ]; then
  tell_hang
  trap '' TERM INT HUP
  finish 71
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
