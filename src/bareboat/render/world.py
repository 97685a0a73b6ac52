"""Whether the ranks are one world, in bash: a part of the job scripts of several ranks.

Ranks that do not find each other train a model each and end with exit code 0. Whatever library they meet by,
the processes of one world hold connections to each other. So each node looks at the TCP connections of the
run's processes, some times in the first ten minutes, until all ranks are one group. A group is a guess where
ranks meet by what nobody sees: it ends no job, and the script only warns.

    world/looks.UNIT   what one node saw: `seen RANK SECONDS`, `RANK END OTHER-END`, `unknown`
    world/one          all ranks are one group: nobody looks any more
    world/apart        in what groups they are, after a minute or at the job's end
"""

from __future__ import annotations

from bareboat.model import Plan, Start

#: Seconds between two looks. A program may load its libraries for minutes.
_PAUSES_S = (2, 2, 2, 2, 2, 5, 5, 10, 15, 15, 30, 30, 60, 120, 300)

#: Beside connections: MPI's ranks on one node share memory, and those of several may use a network that the
#: kernel does not see. Where the MPI check held, who has loaded MPI is in its world.
_CHECKED = "grep -lsE '/libmpi[^/]*[.]so' {maps} | sed 's/$/ shared mpi/'"
_UNCHECKED = (
    "grep -sE '^[^ ]+ rw-s .*(/dev/shm/|/memfd:|/SYSV|segment)' {maps} | "
    'sed -E "s/:[^ ]+ rw-s [^ ]+ ([^ ]+) ([^ ]+) .*/ shared $unit:\\\\1:\\\\2/"; '
    "find {fds} -mindepth 1 \\( -lname '/dev/infiniband/uverbs*' -o -lname '/dev/cxi*' "
    "-o -lname '/dev/hfi1*' \\) -printf '%h shared fabric\\n'"
)

_FUNCTIONS = """\
# Whether the ranks are one world: by the connections between their processes.
connections() {{ # of the run's processes here: RANK END OTHER-END; and which ranks are here
  local pids processes
  mapfile -t pids < <(run_pids)
  [ "${{#pids[@]}}" -gt 0 ] || return
  processes=("${{pids[@]/#//proc/}}")
  {{
    printf 'own %s\\n' "$(readlink /proc/self/ns/net)"
    grep -zsaHE '^RANK=[0-9]{{1,9}}$' "${{processes[@]/%//environ}}" | tr '\\0' '\\n'
    sed -sn '1s/^\\([0-9]*\\) (.*) . \\([0-9]*\\) .*/parent \\1 \\2/p' "${{processes[@]/%//stat}}"
    find "${{processes[@]/%//fd}}" -mindepth 1 \\( -lname 'socket:*' -o -name 0 \\) -printf '%h %l\\n'
    find "${{processes[@]/%//ns/net}}" -printf '%p %l\\n'
    {more}
    cat /proc/net/tcp /proc/net/tcp6
  }} 2>/dev/null | awk -v unit="$unit" -v only={only} -v seconds="$SECONDS" '
    function entity(pid,  hops) {{ # the rank that it belongs to; what started the ranks is no rank
      if (pid in above) return "n" unit
      for (; pid in parent && hops < 1000; hops++) {{
        if (pid in rank) return rank[pid]
        pid = parent[pid]
      }}
      return only ? the_rank : "unknown"
    }}
    function address(text) {{ # an IPv4 address is the same in the table of IPv6
      sub(/^0000000000000000FFFF0000/, "", text)
      return text
    }}
    {{ split($1, part, /[\\/:=]/); pid = part[3] }}
    $1 == "own" {{ own = $2 }}
    $1 == "parent" {{ parent[$2] = $3 }}
    part[4] == "environ" {{ the_rank = rank[pid] = part[6] + 0 }}
    part[4] == "fd" {{ readable[pid]; if ($2 ~ /^socket:/) {{ inode = substr($2, 9) + 0; has[pid, inode] }} }}
    part[4] == "ns" && $2 != own {{ elsewhere[pid] }}
    $2 == "shared" {{ shared[pid, $3] }}
    $4 == "01" {{ ends[$10 + 0] = address($2) " " address($3) }}
    END {{
      for (pid in rank) for (up = parent[pid]; up in parent; up = parent[up]) if (!(up in rank)) above[up]
      for (pid in parent) {{
        who = entity(pid)
        here[who]
        if (!(pid in readable) || pid in elsewhere) hidden[who]
      }}
      for (who in here) if (who ~ /^[0-9]+$/ && !(who in hidden)) print "seen", who, seconds
      for (pair in has) {{
        split(pair, part, SUBSEP)
        if (part[2] in ends && part[1] in parent) print entity(part[1]), ends[part[2]]
      }}
      for (pair in shared) {{
        split(pair, part, SUBSEP)
        print entity(part[1]), part[2], part[2]
      }}
    }}'
}}

groups() {{ # "one", or what to say of the groups that the ranks are in; nothing while that is not known
  cat "$BAREBOAT_CONTROL"/world/looks.* 2>/dev/null | awk -v size={world_size} '
    function root(x) {{ while (up[x] != x) x = up[x]; return x }}
    function told(list, n, numbers, k, from, text) {{ # 0 1 2 5 -> 0-2, 5
      n = split(list, numbers, " "); text = ""; from = 1
      for (k = 1; k <= n; k++) if (k == n || numbers[k + 1] != numbers[k] + 1) {{
        text = text (text == "" ? "" : ", ") numbers[from] (k > from ? "-" numbers[k] : ""); from = k + 1
      }}
      return text
    }}
    $1 == "seen" {{ if (!($2 in first)) first[$2] = $3; last[$2] = $3; next }}
    $1 == "unknown" {{ unknown = 1; next }}
    NF == 3 && !(($1, $2, $3) in had) {{ had[$1, $2, $3]; holders[$2 " " $3] = holders[$2 " " $3] " " $1 }}
    END {{
      for (pair in holders) {{
        split(pair, part, " ")
        n = split(holders[pair], one, " "); m = split(holders[part[2] " " part[1]], other, " ")
        for (k = 1; k <= n; k++) for (l = 1; l <= m; l++) {{
          a = one[k]; b = other[l]
          if (!(a in up)) up[a] = a
          if (!(b in up)) up[b] = b
          if (a ~ /^n/ && b ~ /^n/) continue # the launcher on two nodes
          up[root(a)] = root(b)
        }}
      }}
      for (k = 0; k < size; k++) {{
        if (!(k in up)) up[k] = k
        r = root(k)
        if (!(r in list)) order[++count] = r
        list[r] = list[r] " " k
      }}
      if (count == 1) {{ print "one"; exit }}
      for (k = 0; k < size; k++) {{
        if (!(k in first) || last[k] - first[k] < 8) exit
        if (!seconds || last[k] < seconds) seconds = last[k]
      }}
      if (unknown) exit
      if (count == size) text = size " ranks, and no connection between them was seen in the first " \\
        seconds " s: each may be a world of its own"
      else {{
        text = size " ranks, and no connection was seen in the first " seconds " s between"
        for (k = 1; k <= count && k <= 4; k++) text = text (k > 1 ? " and " : " ") told(list[order[k]])
        text = text (count > 4 ? " and " count - 4 " more groups" : "") ": they may be " count " worlds"
      }}
      print text
    }}'
}}

watch_world() {{
  local pause found
  exec 7<> <(:) # nothing comes from there: to wait for it starts no program
  for pause in {pauses}; do
    read -r -t "$pause" -u 7 || [ "$?" -gt 128 ] || sleep "$pause"
    kill -0 "$$" 2>/dev/null && [ ! -e "$BAREBOAT_CONTROL/world/one" ] || return
    connections >> "$BAREBOAT_CONTROL/world/looks.$unit"
    [ "$unit" -eq 0 ] || continue
    found=$(groups)
    if [ "$found" = one ]; then
      rm -f "$BAREBOAT_CONTROL/world/apart"
      : > "$BAREBOAT_CONTROL/world/one"
    elif [ -n "$found" ] && [ "$SECONDS" -ge 60 ]; then
      printf '%s\\n' "$found" > "$BAREBOAT_CONTROL/world/apart"
    fi
  done
}}

start_watching_world() {{
  local before
  watch_world < /dev/null > /dev/null 2>&1 &
  world_watch=$!
  before=$(trap -p EXIT)
  before=${{before#"trap -- '"}} before=${{before%"' EXIT"}}
  # shellcheck disable=SC2064
  trap "${{before:+$before; }}kill $world_watch 2>/dev/null" EXIT
}}
"""

#: By the first part of the script, before the others are started.
_BEGIN = """\
rm -rf "$BAREBOAT_CONTROL/world" # of an earlier start
mkdir "$BAREBOAT_CONTROL/world" || exit 3
"""

#: After the ranks here: what the script leaves behind would be counted as the command's.
STOP = """\
[ -z "${world_watch:-}" ] || { kill "$world_watch"; wait "$world_watch"; } 2>/dev/null
"""

#: In the first part, when the ranks are over.
_END = """\
if [ "$code" -eq 0 ] && [ ! -e "$BAREBOAT_CONTROL/world/one" ]; then
  worlds=$(groups)
  case $worlds in
    '') ;;
    one) rm -f "$BAREBOAT_CONTROL/world/apart" ;;
    *)
      printf '%s\\n' "$worlds" > "$BAREBOAT_CONTROL/world/apart"
      printf 'bareboat: WARNING: %s\\n' "$worlds" >&2
      printf '  try: compare the world size that the program prints\\n' >&2 ;;
  esac
fi
"""


def is_watched(plan: Plan) -> bool:
    return plan.watches_world is True


def functions(plan: Plan) -> str:
    """For every part of the script."""
    if not is_watched(plan):
        return ""
    topology = plan.job.topology
    places = {"maps": '"${processes[@]/%//maps}"', "fds": '"${processes[@]/%//fd}"'}
    more = ":"
    if plan.start is Start.PROGRAM:
        more = (_UNCHECKED if plan.proof is None else _CHECKED).format(**places)
    return _FUNCTIONS.format(
        world_size=topology.world_size,
        only=int(topology.ranks_per_node == 1),
        pauses=" ".join(map(str, _PAUSES_S)),
        more=more,
    )


def begin(plan: Plan) -> str:
    """Before the ranks are started, once."""
    return _BEGIN if is_watched(plan) else ""


def start(plan: Plan, *, node: str) -> str:
    """Beside the ranks. `node`: bash for the node's number; where a program starts the ranks, the first rank
    of each node looks."""
    if not is_watched(plan):
        return ""
    if plan.start is not Start.PROGRAM:
        return f"unit={node}\nstart_watching_world\n"
    prelude = "".join(f"  {line}\n" for line in plan.prelude.splitlines())
    return (
        f'read -r unit local_rank < <(\n{prelude}  echo "${{RANK:-0}} ${{LOCAL_RANK:-0}}"\n)\n'
        '[ "$what" = proof ] || [ "$local_rank" -ne 0 ] || start_watching_world\n'
    )


def end(plan: Plan) -> str:
    """In the first part, when the ranks are over."""
    return _END if is_watched(plan) else ""
