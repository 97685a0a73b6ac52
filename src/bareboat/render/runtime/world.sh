# shellcheck shell=bash disable=SC2034,SC2154
# Detect whether the ranks are one world: see docs/launchers.md.
# Expects: $world_size, $ranks_per_node, $unit, $BAREBOAT_CONTROL; processes.sh, at_exit.sh.

# Whether the ranks are one world, by the connections between their processes. A rank is what its launcher
# started, with all its descendants, whatever number they give themselves: the program can change variables.
connections() { # of the run's processes here: RANK CONNECTION; the ranks, and those that started ranks
  local pids processes
  mapfile -t pids < <(run_pids)
  [ "${#pids[@]}" -gt 0 ] || return 1
  processes=("${pids[@]/#//proc/}")
  {
    printf 'own %s\n' "$(readlink /proc/self/ns/net)"
    grep -zsaHE '^(RANK|WORLD_SIZE)=[0-9]{1,9}$' "${processes[@]/%//environ}" | tr '\0' '\n'
    sed -sn '1s/^\([0-9]*\) (.*) . \([0-9]*\) .*/parent \1 \2/p' "${processes[@]/%//stat}"
    grep -sH '^Cpus_allowed_list' "${processes[@]/%//status}"
    grep -scHF .so "${processes[@]/%//maps}"
    find "${processes[@]/%//fd}" -mindepth 1 \( -lname 'socket:*' -o -name 0 \) -printf '%h %l\n'
    find "${processes[@]/%//ns/net}" -printf '%p %l\n'
    [ "$start" != program ] || shared_places
    cat /proc/net/tcp /proc/net/tcp6
  } 2> /dev/null | awk -v unit="$unit" -v only="$((ranks_per_node == 1))" -v seconds="$SECONDS" '
    function top(pid,  hops, found) { # the process by which its launcher started this one; "" for none
      for (; pid in parent && hops < 1000; hops++) {
        if (pid in rank) found = pid
        pid = parent[pid]
      }
      return found
    }
    function rank_of(pid) { # nothing for what starts the ranks, also before it has started one
      if (pid in above) return ""
      pid = top(pid)
      return pid != "" ? rank[pid] : only || the_rank == "" ? the_rank : "unknown"
    }
    function connection(one, other) { # the same at both ends; an IPv4 address is the same in the table of IPv6
      sub(/^0000000000000000FFFF0000/, "", one); sub(/^0000000000000000FFFF0000/, "", other)
      return one < other ? one "-" other : other "-" one
    }
    { split($1, part, /[\/:=]/); pid = part[3] }
    $1 == "own" { own = $2 }
    $1 == "parent" { parent[$2] = $3 }
    part[4] == "environ" && part[5] == "RANK" { rank[pid] = part[6] + 0 }
    part[4] == "environ" && part[5] == "WORLD_SIZE" { size[pid] = part[6] }
    part[4] == "status" { mask[pid] = $2 }
    part[4] == "maps" { libraries[pid] = part[5] }
    part[4] == "fd" { readable[pid]; if ($2 ~ /^socket:/) held[pid, substr($2, 9) + 0] }
    part[4] == "ns" && $2 != own { elsewhere[pid] }
    $2 == "shared" { shared[pid, $3] }
    $4 == "01" { ends[$10 + 0] = connection($2, $3) }
    END {
      for (pid in rank) if (top(pid) == pid) {
        the_rank = rank[pid]
        for (up = parent[pid]; up in parent; up = parent[up]) above[up]
        if (pid in mask) print "mask", rank[pid], mask[pid], unit
      }
      for (pid in parent) if ((who = rank_of(pid)) != "") {
        if (libraries[pid] > most[who]) most[who] = libraries[pid]
        here[who]
        if (pid in rank && size[pid] > 1 && rank[pid] != who && who != "unknown") inner[who]
        if (!(pid in readable) || pid in elsewhere) hidden[who]
      }
      for (who in here) if (who != "unknown" && !(who in hidden)) print "seen", who, seconds, most[who] + 0
      for (who in inner) print "inner", who
      for (pair in held) {
        split(pair, part, SUBSEP)
        if (part[2] in ends && part[1] in parent && (who = rank_of(part[1])) != "") print who, ends[part[2]]
      }
      for (pair in shared) { split(pair, part, SUBSEP); if ((who = rank_of(part[1])) != "") print who, part[2] }
    }'
}

shared_places() { # where a program starts the ranks, MPI's ranks on one node share memory
  # After a successful check, processes with MPI are in its world.
  if has mpi_check; then
    grep -lsE '/libmpi[^/]*[.]so' "${processes[@]/%//maps}" | sed 's/$/ shared mpi/'
  else # on several nodes they may use a network that bypasses the kernel
    grep -sE '^[^ ]+ rw-s .*(/dev/shm/|/memfd:|/SYSV|segment)' "${processes[@]/%//maps}" |
      sed -E "s/:[^ ]+ rw-s [^ ]+ ([^ ]+) ([^ ]+) .*/ shared $unit:\\1:\\2/"
    find "${processes[@]/%//fd}" -mindepth 1 \( -lname '/dev/infiniband/uverbs*' -o -lname '/dev/cxi*' \
      -o -lname '/dev/hfi1*' \) -printf '%h shared fabric\n'
  fi
}

world_groups() { # "one", or a message about ranks that are not connected, after "several: " where each of them
  # started ranks itself; nothing while they are unknown. A rank is NODE.NUMBER: the number may be on two nodes.
  awk -v size="$world_size" '
    function root(x,  top, next_one) { # and shorten the way to it
      for (top = x; up[top] != top; top = up[top]);
      for (; up[x] != top; x = next_one) { next_one = up[x]; up[x] = top }
      return top
    }
    FNR == 1 { unit = FILENAME; sub(/.*\./, "", unit) }
    $1 == "mask" { next }
    $1 == "unknown" { unknown = 1; next }
    { rank = unit "." ($1 ~ /^[0-9]/ ? $1 : $2); if (!(rank in up)) { up[rank] = rank; ranks++ } }
    $1 == "inner" { inner[rank]; next }
    $1 == "seen" {
      if (libraries[rank] != $4 || !(rank in last)) since[rank] = $3
      last[rank] = $3; libraries[rank] = $4
      next
    }
    NF == 2 { place = "to " $2; if (!(place in up)) up[place] = place; up[root(rank)] = root(place) }
    END {
      for (rank in up) if (rank !~ /^to /) {
        if (!(root(rank) in known)) groups++
        known[root(rank)]
        if (rank in inner && !(root(rank) in starters)) { starters[root(rank)]; worlds++ }
        if (!(rank in last) || last[rank] - since[rank] < 8) young = 1 # it may still load its libraries
        else if (!seconds || last[rank] < seconds) seconds = last[rank]
      }
      if (groups == 1 && ranks >= size) { print "one"; exit }
      if (worlds > 1) print "several: the program started ranks itself in " worlds " of " size " ranks"
      if (worlds > 1 || ranks < size || unknown || young) exit
      print size " ranks, and no connection between " (groups == ranks ? "them" : groups " groups of them") \
        " was seen in the first " seconds " s: " \
        (groups == ranks ? "each may be a singleton" : "they may be " groups " worlds")
    }' "$BAREBOAT_CONTROL"/world/looks.* 2> /dev/null || :
}

world_pause() { # seconds until the next check: a program may load its libraries for minutes
  local each
  for each in 10:2 120:5 300:15 600:60; do
    [ "$SECONDS" -ge "${each%:*}" ] || { pause=${each#*:} && return 0; }
  done
  return 1
}

watch_world() {
  local pause found
  exec 7<> <(:) # no data comes from there: a wait that starts no program
  while world_pause; do
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
      printf '%s\n' "${found#several: }" > "$BAREBOAT_CONTROL/world/apart"
    fi
  done
}

start_watching_world() {
  watch_world < /dev/null > /dev/null 2>&1 &
  world_watch=$!
  at_exit "kill $world_watch 2> /dev/null"
}

begin_world() { # before the ranks are started: a directory for the nodes' observations
  # Of an earlier start.
  rm -rf "$BAREBOAT_CONTROL/world"
  mkdir "$BAREBOAT_CONTROL/world" || exit 3
}

end_world() { # in the first part, when the ranks have ended: were they one world?
  local found remedy='compare the world size that the program prints' level='WARNING: '
  [ "$code" -eq 0 ] && [ ! -e "$BAREBOAT_CONTROL/world/one" ] || return 0
  found=$(world_groups)
  [ "$found" != one ] || rm -f "$BAREBOAT_CONTROL/world/apart"
  case $found in '' | one) return 0 ;; esac
  if has one_world && [[ $found == several:* ]]; then # the exit code of the MPI check
    code=3 level='' remedy='let the program start no ranks; or, if they are meant to work alone, launcher = "ranks"'
  fi
  printf '%s\n' "${found#several: }" > "$BAREBOAT_CONTROL/world/apart"
  printf 'bareboat: %s%s\n  try: %s\n' "$level" "${found#several: }" "$remedy" >&2
}
