#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher srun, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:866c6bdb53af.
# It needs bash and the files under "Requirements", but no Bareboat.
set -u

# Every process of this run carries this mark in its environment, even in another session or container. This
# shell itself does not: it got the mark as an argument, and does not export it.
unset BAREBOAT_RUN

# What the plan has decided.
ranks_per_node=2 world_size=4
run_apart=user
rung=1 launch='srun --mpi=pmix' rank_says=bareboat-rank
image_archive=/scratch/ada/bareboat/packed/image.tar
image_name=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
image_shared=/scratch/ada/bareboat/flat/sha256
image_own=''
BAREBOAT_TREES=/local/scratch/bareboat-4711/flat image_inodes=32389
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
need /scratch/ada/bareboat/packed/image.tar 'the archive of the image' 'bareboat plan --prepare JOB   # makes it'

# The image: each node copies it once, as one file, to its own scratch directory, where all jobs of the user
# share it. Containers are made of trees in $BAREBOAT_TREES; or in $image_shared, if it cannot be copied.
image_tree=$BAREBOAT_TREES/$image_name image_lock='' unpacking='' reporting='' report_s=10
# With mount points that only this job needs, it has a tree of its own ($image_own in the store).
BAREBOAT_OWN_TREE=${image_own%/tree}
BAREBOAT_OWN_TREE=$image_tree.own-${BAREBOAT_OWN_TREE##*/}
read -r boot < /proc/sys/kernel/random/boot_id

keeps_image() { # whether the complete copy stays: a study's next run uses it, and its job removes it
  [ -e "$BAREBOAT_CONTROL/keep_image" ] && image_is_whole
}

image_is_whole() { # unpacked completely since the machine booted: after a crash the tree may have holes
  [ -d "$image_tree" ] && [ "$(cat "$image_tree.whole" 2> /dev/null)" = "$boot $BAREBOAT_HOST" ]
}

is_elsewhere() { # $1: a tree; whether another node, which may not see the lock, made it and may use it
  local host
  { read -r _ host < "$1.whole"; } 2> /dev/null && [ "${host:-$BAREBOAT_HOST}" != "$BAREBOAT_HOST" ]
}

told_delivery() { # $1: unpacked, found or shared; $2: seconds
  printf '%(%s)T %s %s %s %s\n' -1 "$BAREBOAT_HOST" "$1" "$2" "$(stat -c %s "$image_archive")" \
    >> "$BAREBOAT_CONTROL/deliveries.$BAREBOAT_HOST"
}

read_shared() { # $1: why the image cannot be on this node
  printf 'bareboat: the image is NOT copied to this node%s; it is read from the store: %s\n' "$HERE" "$1" >&2
  use_store
  told_delivery shared 0
}

use_store() { BAREBOAT_TREES=$image_shared BAREBOAT_OWN_TREE=$image_own; }

own_folder() { # $1: a directory for this user only, made if missing; sets why where it is another user's
  local seen
  mkdir -m 700 "$1" 2> /dev/null
  seen=$(stat -c '%u %a %F' "$1" 2> /dev/null) || return 1
  case $seen in
    "$UID 700 "*) [ -L "$1" ] || { [ -d "$1" ] && return 0; } ;;
  esac
  # In a directory for everybody, another user could have made it, and containers would run its content.
  why="$1 is not a directory of this user alone, but: $seen; try: --node-scratch DIR"
  return 1
}

others_rename() { # $1: the node's scratch; whether others may rename files in it or above it, and where (seen)
  local place=$1 places=() owner group mode root=''
  while [ -n "$place" ]; do
    places+=("$place")
    place=${place%/*}
  done
  while read -r owner group mode seen; do
    : "${root:=$owner}" # nobody, in a user namespace without root
    seen="$seen$HERE (owner $owner, mode $mode)"
    case $owner in 0 | "$UID" | "$root") ;; *) return 0 ;; esac
    ((0$mode & 01000 || (0$mode & 022) == 0)) && continue # sticky, or not writable for others
    # root's group, and the user's own group of the same name, have no other members.
    ((0$mode & 2)) || { [ "$group" != 0 ] && [ "$group $(id -un)" != "$(id -g) $(id -gn)" ]; } && return 0
  done < <(stat -c '%u %g %a %n' -- / "${places[@]}")
  return 1
}

own_folders() { # the user's directory in the node's scratch, and in it the one for trees of this kind
  local scratch seen
  scratch=$(cd -- "${BAREBOAT_TREES%/*/*}" 2> /dev/null && pwd -P) || return 1
  if others_rename "$scratch"; then
    why="other users may rename files in $seen; try: --node-scratch DIR"
    return 1
  fi
  own_folder "${BAREBOAT_TREES%/*}" && own_folder "$BAREBOAT_TREES"
}

remove_image() { # $1: a tree; its lock is held exclusively
  # First, so that nobody considers the rest complete.
  rm -f "$1.whole" "$1.errors"
  rm -rf "$1" "$1.part" "$1".own-* 2> /dev/null || {
    # Directories that are not writable for their owner.
    find "$1" "$1.part" "$1".own-* -type d ! -perm -700 -exec chmod u+rwx {} + 2> /dev/null
    rm -rf "$1" "$1.part" "$1".own-*
  }
}

is_lock_of() { # $1: a tree, $2: a descriptor; whether it is the file that all others lock
  [ "$1.lock" -ef "/proc/self/fd/$2" ]
}

sweep_images() { # remove unused trees, except that of the lock $1: their jobs were killed
  local lock descriptor
  for lock in "${BAREBOAT_TREES%/*}"/*/*.lock; do
    [ "$lock" != "${1:-}" ] || continue
    [ -f "$lock" ] || continue
    ! is_elsewhere "${lock%.lock}" || continue
    { exec {descriptor}>> "$lock"; } 2> /dev/null || continue
    if flock -x -n "$descriptor" && is_lock_of "${lock%.lock}" "$descriptor"; then
      remove_image "${lock%.lock}"
      rm -f "$lock"
    fi
    exec {descriptor}>&-
  done
  rmdir "${BAREBOAT_TREES%/*}"/* "${BAREBOAT_TREES%/*}" 2> /dev/null
}

make_place() { # $1: a directory (d) or a file (f) as a mount point; $2: its path
  if [ -L "$2" ] || [ ! -e "$2" ]; then
    mkdir -p "${2%/*}" 2> /dev/null
    [ -w "${2%/*}" ] || chmod u+rwx "${2%/*}" || return 1
    [ ! -L "$2" ] || rm "$2"
    case $1 in
      d) mkdir -p "$2" ;;
      *) : >> "$2" ;;
    esac
  fi
}

make_image_places() { # mount points that every job needs and the image lacks
  local place
  while IFS= read -r -d '' place; do # d/a/folder or f/a/file
    make_place "${place:0:1}" "$image_tree${place:1}" || return 1
  done < "$image_archive.places"
}

make_own_tree() { # make it of links to the image's, by the store's list; once for all jobs with such mounts
  local part=$BAREBOAT_OWN_TREE.$BASHPID
  [ -n "$image_own" ] && [ ! -d "$BAREBOAT_OWN_TREE" ] || return 0
  if mkdir -m 700 "$part" && fill_own_tree "$part" 2> /dev/null; then
    mv -T "$part" "$BAREBOAT_OWN_TREE" 2> /dev/null
  fi
  rm -rf "$part" 2> /dev/null
  [ -d "$BAREBOAT_OWN_TREE" ] # or another job was faster
}

fill_own_tree() { # $1: the new tree
  local entry path folder='' links=() folders=() count=0
  while IFS= read -r -d '' entry; do # a letter, which images/deployment/roots.py explains, and a path
    path=${entry:2}
    case $entry in
      l/*) links+=("$image_tree/$path") && continue ;;
      b/*) mkdir "$1/$path" && continue ;;
    esac
    link_into "$1/$folder" || return 1
    case $entry in
      a/*) cp -al "$image_tree/." "$1" ;;
      n/*)
        folders[count++]=$path folder=$path
        [ -d "$1/$path" ] || mkdir -m 700 "$1/$path"
        ;;
      *) make_place "${entry:0:1}" "$1/$path" ;;
    esac || return 1
  done < "${image_own%/tree}/how"
  while ((count-- > 0)); do
    path=${folders[count]}
    chmod --reference="$image_tree/$path" "$1/$path" && touch -r "$image_tree/$path" "$1/$path" || return 1
  done
}

link_into() { # $1: a directory, for the paths in `links`, which may be too many for one command
  [ "${#links[@]}" -gt 0 ] || return 0
  printf '%s\0' "${links[@]}" | xargs -0 cp -al -t "$1" -- || return 1
  links=()
}

report_copy() { # $1: the process that reads the image's file; report to the log every $report_s seconds
  local descriptor position size began=$SECONDS seconds
  trap 'kill "$!" 2> /dev/null; exit' TERM
  size=$(stat -c %s "$image_archive")
  while
    sleep "$report_s" > /dev/null 2>&1 &
    wait "$!"
    kill -0 "$1" 2> /dev/null
  do
    seconds=$((SECONDS - began))
    for descriptor in "/proc/$1/fd"/*; do
      [ "$descriptor" -ef "$image_archive" ] || continue
      { read -r _ position < "/proc/$1/fdinfo/${descriptor##*/}"; } 2> /dev/null || continue
      ((position > 0 && seconds > 0)) || continue
      printf 'bareboat: copying the image to this node%s: %s of %s MB, %s MB/s, about %s s left\n' "$HERE" \
        "$((position / 1000000))" "$((size / 1000000))" "$((position / seconds / 1000000))" \
        "$(((size - position) * seconds / position))" >&2
    done
  done
}

end_copy() { # stop unpacking and its reports
  local pid
  for pid in $unpacking $reporting; do
    kill "$pid" 2> /dev/null
    wait "$pid"
  done
  unpacking='' reporting=''
}

unpack_image() { # sets why on failure
  local free needed part=$image_tree.part
  remove_image "$image_tree"
  mkdir -m 700 "$part" 2> /dev/null || {
    why="$part cannot be made"
    return 1
  }
  : 2> /dev/null > "$part/trial" && chmod 700 "$part/trial"
  [ -x "$part/trial" ] || {
    why="no program can run from $part: it is full, or mounted noexec"
    return 1
  }
  rm -f "$part/trial"
  # A file's last block is allocated completely.
  needed=$(($(stat -c %s "$image_archive") / 1024 + image_inodes * 2))
  free=$(df -Pk "$part" 2> /dev/null | awk 'NR == 2 { print $4 }')
  if [ "${free:-$needed}" -lt "$needed" ]; then
    why="$part needs $((needed / 1024)) MiB, and there are $((free / 1024)) MiB free"
    return 1
  fi
  free=$(df -Pi "$part" 2> /dev/null | awk 'NR == 2 { print ($2 ~ /^[1-9]/) ? $4 : "" }')
  if [ "${free:-$image_inodes}" -lt "$image_inodes" ]; then
    why="$part needs $image_inodes inodes, and there are $free free"
    return 1
  fi
  # In the background, because bash runs a trap only between commands or during `wait`.
  tar -xopf "$image_archive" -C "$part" < /dev/null > /dev/null 2> "$image_tree.errors" &
  unpacking=$!
  report_copy "$unpacking" < /dev/null &
  reporting=$!
  if wait "$unpacking"; then
    unpacking=
    end_copy
    mv "$part" "$image_tree" && echo "$boot $BAREBOAT_HOST" 2> /dev/null > "$image_tree.whole"
    image_is_whole && return 0
    why="$image_tree cannot be made"
  else
    unpacking=
    end_copy
    why="unpacking it ended with: $(tail -n 1 "$image_tree.errors" 2> /dev/null)"
  fi
  return 1
}

bring_image() { # make it available on this node, with its lock shared; otherwise use the store's
  local why='' how=found began=$SECONDS attempt
  if ! command -v flock > /dev/null || ! command -v tar > /dev/null; then
    read_shared 'it requires flock and tar'
    return "$?"
  fi
  for attempt in {1..50}; do
    if own_folders && { exec {image_lock}>> "$image_tree.lock"; } 2> /dev/null; then
      if ! flock -s "$image_lock" 2> /dev/null; then
        why="files in $BAREBOAT_TREES cannot be locked"
        break
      fi
      if is_lock_of "$image_tree" "$image_lock"; then
        image_is_whole && break
        if is_elsewhere "$image_tree"; then
          why="${BAREBOAT_TREES%/*/*} is not local to this node"
          exec {image_lock}>&-
          image_lock=
          break
        fi
        # Only for a second: a job that has unpacked the tree meanwhile may hold the lock shared until it ends.
        # While one unpacks, the next `flock -s` waits.
        if flock -x -w 1 "$image_lock" && is_lock_of "$image_tree" "$image_lock" &&
          ! image_is_whole && ! is_elsewhere "$image_tree"; then
          how=unpacked
          unpack_image || break
        fi
      fi
      exec {image_lock}>&- # and again, shared: it may have been removed in between
    elif [ -n "$why" ]; then
      break
    elif [ ! -w "${BAREBOAT_TREES%/*/*}" ]; then
      why="${BAREBOAT_TREES%/*/*} is not a writable directory"
      break
    elif [ "$attempt" -gt 1 ]; then # the first time, the last user may just have removed the directories
      sleep 0.1
    fi
    image_lock=
    [ "$attempt" -lt 50 ] || why="no lock can be obtained in $BAREBOAT_TREES"
  done
  [ -n "$why" ] || make_image_places || why="what is mounted can have no place in $image_tree"
  [ -n "$why" ] || make_own_tree || why="$BAREBOAT_OWN_TREE cannot be made"
  if [ -n "$why" ]; then
    drop_image
    read_shared "$why"
    return "$?"
  fi
  keeps_image || sweep_images "$image_tree.lock"
  told_delivery "$how" "$((SECONDS - began))"
  if [ "$how" = found ]; then
    printf 'bareboat: the image is on this node%s already, in %s\n' "$HERE" "$image_tree" >&2
  else
    printf 'bareboat: the image is on this node%s: %s MB unpacked in %s s to %s\n' "$HERE" \
      "$(($(stat -c %s "$image_archive") / 1000000))" "$((SECONDS - began))" "$image_tree" >&2
  fi
}

drop_image() { # whoever gets the lock exclusively is the last user and removes the tree
  [ -n "$image_lock" ] || return 0
  end_copy
  if ! keeps_image && flock -x -n "$image_lock" && is_lock_of "$image_tree" "$image_lock"; then
    remove_image "$image_tree"
    rm -f "$image_tree.lock"
  fi
  exec {image_lock}>&-
  image_lock=
  rmdir "${image_tree%/*}" "${image_tree%/*/*}" 2> /dev/null
}

use_image() { # the copy made by the part --bring
  if { exec {image_lock}< "$image_tree.lock"; } 2> /dev/null; then
    flock -s "$image_lock" && is_lock_of "$image_tree" "$image_lock" && image_is_whole && make_own_tree && return 0
    exec {image_lock}<&-
    image_lock=
  fi
  case $(tail -n 1 "$BAREBOAT_CONTROL/deliveries.$BAREBOAT_HOST" 2> /dev/null) in
    *" shared "*) use_store ;;
    *) read_shared 'it does not exist any more' ;;
  esac
}

leave_image() { [ "$status" -lt 128 ] || drop_image; } # after a signal no more ranks are started here
at_exit leave_image
case $part in
  --bring)
    bring_image
    exit
    ;;
  --leave)
    for ((attempt = 1; attempt <= what; attempt++)); do # processes that are about to end still have it
      sweep_images
      [ -e "$image_tree.lock" ] || break
      sleep 0.3
    done
    # Also where another job still uses it: a failing node ends the others' parts.
    exit 0
    ;;
esac
use_image

rank_names() {
  RANK=${SLURM_PROCID:-0} LOCAL_RANK=${SLURM_LOCALID:-0}
  LOCAL_WORLD_SIZE=2
  unset OMPI_MCA_btl_vader_single_copy_mechanism PMIX_MCA_gds PMIX_MCA_psec
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

read -r unit local_rank < <(rank_names; echo "${RANK:-0} ${LOCAL_RANK:-0}")
[ "$what" = check ] || [ "$local_rank" -ne 0 ] || start_watching_world

seal() { # $@: words. (A here-string is a pipe, or in bash before 5.1 an unnamed file.)
  exec {sealed}<<< '' && read -r -u "$sealed" _ || exit 3
  printf '%s\0' "$@" >> "/proc/self/fd/$sealed"
}

job_command() {
  rank_names
  passed=()
  for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME "${!PMIX_@}" "${!PMI_@}" "${!PMI2_@}" "${!OMPI_@}" "${!PRTE_@}" "${!SLURM_@}" "${!MPI_LOCAL@}" "${!HYDI_@}" "${!MPIEXEC_@}"; do
    [ -n "${!name+set}" ] || continue
    value=${!name}
    passed+=(--setenv "$name" "$value")
  done
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
  --seccomp 197 197< /scratch/ada/store/programs/2262571a73a496c1/full.bpf \
  --bind "$BAREBOAT_TREES"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa / \
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
  --bind "$BAREBOAT_TREES"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa / \
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
  --setenv PYTHONNOUSERSITE 1 \
  --setenv TZ Europe/Rome \
  --setenv USER ada
start_command "$what"
exec {sealed}<&-
wait "$child"
code=$?
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
  exec srun --mpi=pmix --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=4 --kill-on-bad-exit=1 --label "$@"
}

run() { # $1: job or check
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "$1"
  program bash "$script" --rank 0 "$@" &
  await "$!"
}

leave_images() { # $1: number of attempts; also because steps that are not cleaned up block others
  local attempt
  [ -z "$left" ] && [ ! -e "$BAREBOAT_CONTROL/keep_image" ] || return 1
  left=1
  for ((attempt = 1; attempt <= $1; attempt++)); do
    everywhere --leave "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$1" 2> "$BAREBOAT_CONTROL/leaving.log" && return 0
    sleep 1
  done
}
left=
at_exit 'leave_images 1'
everywhere --bring "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" &
await "$!" || finish 3

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

leave_images 10

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
