# shellcheck shell=bash disable=SC2034,SC2154
# Detect whether the ranks are one world: see render/world.py.
# Expects: $world_size, $ranks_per_node, $world_pauses_s, $unit, $BAREBOAT_CONTROL; processes.sh, at_exit.sh.

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
    [ "$start" != program ] || shared_places
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

begin_world() { # before the ranks are started: a directory for the nodes' observations
  # Of an earlier start.
  rm -rf "$BAREBOAT_CONTROL/world"
  mkdir "$BAREBOAT_CONTROL/world" || exit 3
}

end_world() { # in the first part, when the ranks have ended: were they one world?
  local worlds
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
}
