# shellcheck shell=bash disable=SC2034,SC2154
# Detect whether the ranks are one world: see docs/launchers.md.
# Expects: $world_size, $ranks_per_node, $unit, $BAREBOAT_CONTROL; processes.sh, at_exit.sh.

# Whether the ranks are one world, by the connections between their processes. A rank is what its launcher
# started, with all its descendants, whatever number they give themselves: the program can change variables.
connections() { # of the run's processes here: RANK END OTHER-END; the ranks that are here; worlds inside of them
  local pids processes
  mapfile -t pids < <(run_pids)
  [ "${#pids[@]}" -gt 0 ] || return 1
  processes=("${pids[@]/#//proc/}")
  {
    printf 'own %s\n' "$(readlink /proc/self/ns/net)"
    grep -zsaHE "$world_variables" "${processes[@]/%//environ}" | tr '\0' '\n'
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
    function entity(pid) { # the rank that it belongs to; the starter of the ranks is not a rank
      if (pid in above) return "n" unit
      pid = top(pid)
      return pid != "" ? name[pid] : only ? the_rank : "unknown"
    }
    function world(pid, family) { # RANK/SIZE as a process has it from a launcher
      if (!((pid, family "RANK") in value) || !((pid, family "SIZE") in value)) return ""
      return family value[pid, family "RANK"] "/" value[pid, family "SIZE"]
    }
    function is_inner(pid, rank_pid, family) { # whether it has another rank than the process of its launcher
      if (world(pid, family) == world(rank_pid, family)) return 0
      return value[pid, family "SIZE"] > 1 || value[pid, "ID"] != "" && value[pid, "ID"] != value[rank_pid, "ID"]
    }
    function address(text) { # an IPv4 address is the same in the table of IPv6
      sub(/^0000000000000000FFFF0000/, "", text)
      return text
    }
    { split($1, part, /[\/:=]/); pid = part[3] }
    $1 == "own" { own = $2 }
    $1 == "parent" { parent[$2] = $3 }
    part[4] == "environ" {
      if (part[5] == "RANK") rank[pid] = part[6] + 0
      sub(/OMPI_COMM_WORLD_/, "O", part[5]); sub(/PMI_/, "P", part[5])
      sub(/WORLD_SIZE/, "SIZE", part[5]); sub(/TORCHELASTIC_RUN_ID/, "ID", part[5])
      value[pid, part[5]] = part[6]
    }
    part[4] == "status" { mask[pid] = $2 }
    part[4] == "maps" { libraries[pid] = part[5] }
    part[4] == "fd" { readable[pid]; if ($2 ~ /^socket:/) { inode = substr($2, 9) + 0; has[pid, inode] } }
    part[4] == "ns" && $2 != own { elsewhere[pid] }
    $2 == "shared" { shared[pid, $3] }
    $4 == "01" { ends[$10 + 0] = address($2) " " address($3) }
    END {
      for (pid in rank) if (top(pid) == pid) { first[pid]; of_number[rank[pid]]++ }
      for (pid in first) {
        the_rank = name[pid] = of_number[rank[pid]] == 1 ? rank[pid] : rank[pid] "/" pid
        for (up = parent[pid]; up in parent; up = parent[up]) above[up]
        if (pid in mask) print "mask", name[pid], mask[pid], unit
      }
      for (pid in parent) {
        who = entity(pid)
        here[who]
        if (libraries[pid] > most[who]) most[who] = libraries[pid]
        if (!(pid in readable) || pid in elsewhere) hidden[who]
      }
      for (who in here) if (who ~ /^[0-9]/ && !(who in hidden)) print "seen", who, seconds, most[who]
      n = split(" ,O,P", families, ",")
      for (k = 1; k <= n; k++) {
        family = k == 1 ? "" : families[k]
        for (pid in parent) {
          up = top(pid)
          if (up == "" || world(pid, family) == "") continue
          worlds[name[up], world(pid, family)]
          if (is_inner(pid, up, family)) inner[name[up]]
        }
      }
      for (pair in worlds) {
        split(pair, part, SUBSEP)
        if (part[1] in inner) print "inner", part[1], part[2]
      }
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

# By which launchers give ranks their number.
world_variables='^(RANK|WORLD_SIZE|(OMPI_COMM_WORLD|PMI)_(RANK|SIZE))=[0-9]{1,9}$'
world_variables+='|^TORCHELASTIC_RUN_ID=[A-Za-z0-9_.-]{1,64}$'

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

world_groups() { # "one", or a message about the groups of ranks, after "several: " where the program started
  # ranks itself; nothing while they are unknown. A rank is NODE.NUMBER: the number may be on two nodes.
  awk -v size="$world_size" '
    function root(x) { while (up[x] != x) x = up[x]; return x }
    function add(x) {
      if (x in up) return
      up[x] = x
      if (x !~ /^n/) entities++
      if (x !~ /^n/ && number(x) > most) most = number(x)
    }
    function number(x) { sub(/^[^.]*\./, "", x); sub(/\/.*/, "", x); return x + 0 }
    function ranges(list, n, numbers, k, from, text) { # 0 1 2 5 -> 0-2, 5
      n = split(list, numbers, " "); text = ""; from = 1
      for (k = 1; k <= n; k++) if (k == n || numbers[k + 1] != numbers[k] + 1) {
        text = text (text == "" ? "" : ", ") numbers[from] (k > from ? "-" numbers[k] : ""); from = k + 1
      }
      return text
    }
    FNR == 1 { unit = FILENAME; sub(/.*\./, "", unit) }
    $1 == "mask" { next }
    { key = $(($1 == "seen" || $1 == "inner") + 1); if (key !~ /^n|^unknown/) key = unit "." key }
    $1 == "seen" {
      add(key)
      if (!(key in last) || libraries[key] != $4) since[key] = $3
      last[key] = $3; libraries[key] = $4
      next
    }
    $1 == "inner" {
      add(key)
      if (!((key, $3) in inner)) { inner[key, $3]; holders_of[$3] = holders_of[$3] " " key }
      next
    }
    $1 == "unknown" { unknown = 1; next }
    NF == 3 && !((key, $2, $3) in had) {
      had[key, $2, $3]; holders[$2 " " $3] = holders[$2 " " $3] " " key
      add(key)
    }
    END {
      for (pair in holders) {
        split(pair, part, " ")
        n = split(holders[pair], one, " "); m = split(holders[part[2] " " part[1]], other, " ")
        for (k = 1; k <= n; k++) for (l = 1; l <= m; l++) {
          a = one[k]; b = other[l]
          if (a ~ /^n/ && b ~ /^n/) continue # the launcher on two nodes
          up[root(a)] = root(b)
        }
      }
      for (k = 0; k <= most; k++) for (x in up) if (x !~ /^n/ && number(x) == k) {
        r = root(x)
        if (!(r in list)) order[++count] = r
        list[r] = list[r] " " k
      }
      if (count == 1 && entities >= size) { print "one"; exit }
      for (world in holders_of) {
        n = split(holders_of[world], one, " "); several = 0
        for (k = 1; k <= n; k++) if (!(root(one[k]) in has_world)) { has_world[root(one[k])]; several++ }
        if (several > worlds || several == worlds && world < which) { worlds = several; which = world }
        split("", has_world)
      }
      if (worlds > 1) {
        sub(/^[OP]/, "", which); split(which, part, "/")
        print "several: " worlds " worlds, each with a rank " part[1] " of " part[2] \
          ": the program started ranks itself in each of " worlds " ranks"
        exit
      }
      if (entities < size || unknown) exit
      for (x in up) if (x !~ /^n/) {
        if (!(x in last) || last[x] - since[x] < 8) exit # it may still load its libraries
        if (!seconds || last[x] < seconds) seconds = last[x]
      }
      if (count == entities) text = size " ranks, and no connection between them was seen in the first " \
        seconds " s: each may be a singleton"
      else {
        text = size " ranks, and no connection was seen in the first " seconds " s between"
        for (k = 1; k <= count && k <= 4; k++) text = text (k > 1 ? " and " : " ") ranges(list[order[k]])
        text = text (count > 4 ? " and " count - 4 " more groups" : "") ": they may be " count " worlds"
      }
      print text
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
  local worlds
  [ "$code" -eq 0 ] && [ ! -e "$BAREBOAT_CONTROL/world/one" ] || return 0
  worlds=$(world_groups)
  case $worlds in
    '') return 0 ;;
    one) rm -f "$BAREBOAT_CONTROL/world/apart" && return 0 ;;
  esac
  printf '%s\n' "${worlds#several: }" > "$BAREBOAT_CONTROL/world/apart"
  if has one_world && [[ $worlds == several:* ]]; then # the exit code of the MPI check
    code=3
    printf 'bareboat: %s\n  try: %s\n' "${worlds#several: }" \
      'let the program start no ranks; or, if they are meant to work alone, launcher = "ranks"' >&2
  else
    printf 'bareboat: WARNING: %s\n' "${worlds#several: }" >&2
    printf '  try: compare the world size that the program prints\n' >&2
  fi
}
