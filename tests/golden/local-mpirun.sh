#!/usr/bin/env bash
# digits: 1 node x 2 ranks; engine bubblewrap, launcher mpirun, scheduler local
# Written by Bareboat 0.1.0, plan sha256:624ba1a81571.
# It needs bash and the files under "Requirements", but no Bareboat.
set -u

# Every process of this run carries this mark in its environment, even in another session or container. This
# shell itself does not: it got the mark as an argument, and does not export it.
unset BAREBOAT_RUN

# What the plan has decided.
ranks_per_node=2 world_size=2
run_apart=user
rung=1 launch='mpirun (PRRTE) 5.0.3' rank_says=bareboat-rank
world_pauses_s=(2 2 2 2 2 5 5 10 15 15 30 30 60 120 300)

BAREBOAT_RUN="${1:-digits-$$}"
HERE=

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
need /home/ada/digits 'the working directory' 'mkdir -p /home/ada/digits'
need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'

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

part=--first
if [ "${1:-}" = --rank ]; then # bash SCRIPT --rank RUN CONTROL RUN_DIR PORT WHAT
  part=$1 BAREBOAT_RUN=$2 BAREBOAT_CONTROL=$3 BAREBOAT_RUN_DIR=$4 BAREBOAT_PORT=$5 what=$6
  BAREBOAT_SCRIPT=$BAREBOAT_RUN
fi
BAREBOAT_NODE=0 BAREBOAT_MASTER=127.0.0.1 BAREBOAT_INTERFACE=lo BAREBOAT_JOB=$$
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname

rank_logs=

if [ "$part" = --rank ]; then
rank_names() {
  RANK=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}} LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}}
  LOCAL_WORLD_SIZE=2
  unset LD_LIBRARY_PATH OMPI_LIBDIR_LOC OMPI_MCA_btl_vader_single_copy_mechanism OMPI_MCA_mca_base_component_path OMPI_MCA_schizo OPAL_PREFIX PMIX_INSTALL_PREFIX PMIX_MCA_gds PMIX_MCA_psec PMIX_PREFIX PRTE_PREFIX
}

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
' --size 2 --timeout 120
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
  --setenv OMPI_MCA_schizo '^orte' \
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

fi

# The run's files: this script writes to BAREBOAT_CONTROL, which no container sees; the ranks to
# BAREBOAT_RUN_DIR.
if [ -z "${BAREBOAT_CONTROL:-}" ]; then
  BAREBOAT_CONTROL=$(mktemp -d "${TMPDIR:-/tmp}/bareboat-run.XXXXXX") || exit 3
  remove_run_folder() { rm -rf "$BAREBOAT_CONTROL"; }
  at_exit remove_run_folder
  BAREBOAT_RUN_DIR=$BAREBOAT_CONTROL/ranks
  mkdir "$BAREBOAT_RUN_DIR" || exit 3
fi
export -n BAREBOAT_CONTROL

exits_of_run() { cat "$BAREBOAT_CONTROL"/exits.* 2> /dev/null; }
exits_of_node() { cat "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE" 2> /dev/null; }

rm -rf "$BAREBOAT_CONTROL/world" # of an earlier start
mkdir "$BAREBOAT_CONTROL/world" || exit 3

# A port without a listener; jobs start the search at different ones. (Reading the kernel's table of sockets
# takes 15 ms.)
BAREBOAT_PORT=$((20000 + ${BAREBOAT_JOB//[!0-9]/}0 / 10 % 20000))
while { true < "/dev/tcp/127.0.0.1/$BAREBOAT_PORT" || true < "/dev/tcp/$BAREBOAT_MASTER/$BAREBOAT_PORT"; } \
  2> /dev/null; do
  BAREBOAT_PORT=$((BAREBOAT_PORT + 1))
done

program() { # starts the ranks
  exec /opt/sw/bin/mpirun --prtemca prte_tmpdir_base /dev/shm -n 2 --map-by ppr:2:node --bind-to none --oversubscribe "$@"
}

finish() {
  exit "$1"
}

stop() { # $1: exit code; the ranks first, so that they have time to end
  trap '' TERM INT HUP
  end_run
  kill -s TERM "$child" 2> /dev/null
  exit "$1"
}
child=

script=$0
if [ ! -f "$script" ]; then # run as bash -c "…"
  script=$BAREBOAT_CONTROL/job.sh
  (umask 077 && printf '%s\n' "$BASH_EXECUTION_STRING" > "$script") || exit 3
fi
[ -e /dev/fd/0 ] || exec < /dev/null

run() { # $1: job or check
  set -- "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_RUN_DIR" "$BAREBOAT_PORT" "$1"
  program bash "$script" --rank "$@" <&0 &
  child=$!
  wait "$child"
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

left=
if [ "$code" -eq 0 ]; then
  read -r left 2> /dev/null < "/proc/$$/task/$$/children"
fi
# Processes that the command left behind end with the run.
if [ "$code" -ne 0 ] || [ -n "$left" ]; then end_run; fi
exit "$code"
