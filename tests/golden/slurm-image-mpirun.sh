#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher image-mpirun, scheduler slurm
# Written by Bareboat 0.1.0, plan sha256:4fd96d3ed67e.
# It needs bash and the files under "Requirements", but no Bareboat.
set -u

# Every process of this run carries this mark in its environment, even in another session or container. This
# shell itself does not: it got the mark as an argument, and does not export it.
unset BAREBOAT_RUN

# What the plan has decided.
ranks_per_node=2 world_size=4
run_apart=user

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

exits() { # $1: the first of these files, $2: how many; only valid lines RANK CODE
  local number file found=()
  for ((number = $1; number < $1 + $2; number++)); do
    file=$BAREBOAT_RUN_DIR/exits.$number
    [ ! -f "$file" ] || [ -L "$file" ] || found+=("$file")
  done
  [ "${#found[@]}" -eq 0 ] || head -qc 65536 "${found[@]}" |
    awk -v n="$world_size" '/^(0|[1-9][0-9]*) (0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$/ && $1 < n'
}

exits_of_run() { exits 0 "$world_size"; }
exits_of_node() { exits "$BAREBOAT_NODE" 1; }

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

# Not exported: only processes of the launcher get it.
unset BAREBOAT_SECRET
read -r BAREBOAT_SECRET < "$BAREBOAT_CONTROL/secret" || [ -n "${BAREBOAT_SECRET:-}" ] || exit 3

start_sampler() {
  local program=$BAREBOAT_CONTROL/sampler.py python place=$BAREBOAT_CONTROL/usage/$BAREBOAT_HOST
  [ -e "$program" ] || program=${BAREBOAT_CONTROL%/points/*}/sampler.py # of all points of a sweep or a study
  [ -e "$program" ] && python=$(command -v python3) || return 1
  (umask 077 && mkdir -p "${place%/*}" && mkdir "$place") 2> /dev/null || return 0 # by another rank's part
  "$python" -I -S "$program" "$BAREBOAT_RUN" "$$" "$place" < /dev/null > /dev/null 2>&1 &
  at_exit "kill $! 2> /dev/null"
}
start_sampler

seal() { # $@: words. (A here-string is a pipe, or in bash before 5.1 an unnamed file.)
  exec {sealed}<<< '' && read -r -u "$sealed" _ || exit 3
  printf '%s\0' "$@" >> "/proc/self/fd/$sealed"
}

job_command() {
  passed=()
  for name in BAREBOAT_SECRET; do
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
  /env/bin/python -c 'import sys
if sys.path[:1] == [""]:
    sys.path.append(sys.path.pop(0))

"""Mutual authentication of a run'"'"'s nodes by its secret, and the connections on which both sides have passed
it.

Anyone on the network can connect to the first node, or listen in its place. So each side proves to the other
that it knows the run'"'"'s secret, which is never sent, before either reads more than a few bytes:

    other node -> first    "FLR2", a nonce of 32 bytes
    first -> other         a nonce of 32 bytes, HMAC-SHA256(secret; "lead", place, both nonces)
    other -> first         HMAC-SHA256(secret; "follow", place, both nonces)

The place is ADDRESS:PORT. After this a message is its length in 4 bytes, its HMAC by a key of this connection
(with the direction and the message'"'"'s number), and a JSON object. Nothing is encrypted.

Part of programs that run as text in images (bareboat.mpi.text): only the standard library of Python 3.6.
"""

import contextlib
import hashlib
import hmac
import json
import os
import selectors
import socket
import struct
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Contains the secret, in hexadecimal digits.
SECRET = "BAREBOAT_SECRET"
#: Time limit of a connection'"'"'s authentication.
PROOF_S = 10.0
#: Maximum number of connections that are not yet authenticated.
MOST_CALLERS = 256
#: A message is a command with its environment, a few kB.
_MOST_BYTES = 2**22
#: If a port is in use, the next is tried; only processes with the secret know which.
_MORE_PORTS = 7
_MAGIC = b"FLR2"
_NONCE, _MAC = 32, 32


class Line:
    """A connection for JSON objects. With a key each is signed, with its direction and number."""

    def __init__(
        self, connection: socket.socket, key: bytes = b"", ours: bytes = b"", theirs: bytes = b""
    ) -> None:
        self.connection = connection
        self._key = key
        self._ours = ours
        self._theirs = theirs
        self._sent = 0
        self._received = 0
        self._lock = threading.Lock()

    def send(self, **message: "Any") -> None:
        data = json.dumps(message).encode()
        with self._lock:
            signature = self._sign(self._ours, self._sent, data)
            self._sent += 1
            self.connection.sendall(struct.pack(">I", len(data)) + signature + data)

    def receive(self) -> "dict[str, Any] | None":
        """The next message; None at the end of the connection, and for anything invalid."""
        try:
            (size,) = struct.unpack(">I", exactly(self.connection, 4))
            if size > _MOST_BYTES:
                return None
            signature = exactly(self.connection, _MAC if self._key else 0)
            data = exactly(self.connection, size)
            if not hmac.compare_digest(signature, self._sign(self._theirs, self._received, data)):
                return None
            self._received += 1
            found = json.loads(data.decode())
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def _sign(self, direction: bytes, number: int, data: bytes) -> bytes:
        if not self._key:
            return b""
        return hmac.new(self._key, direction + struct.pack(">Q", number) + data, hashlib.sha256).digest()


def exactly(connection: socket.socket, size: int, end: "float | None" = None) -> bytes:
    """Read `size` bytes until `end` on the monotonic clock. Raises OSError."""
    found = bytearray()
    while len(found) < size:
        if end is not None:
            connection.settimeout(max(end - time.monotonic(), 0.001))
        data = connection.recv(min(size - len(found), 65536))
        if not data:
            raise OSError("the connection ended")
        found += data
    return bytes(found)


def _proof(secret: bytes, what: bytes, place: str, follower: bytes, lead: bytes) -> bytes:
    return hmac.new(
        secret, b"\0".join((b"relay", what, place.encode(), follower + lead)), hashlib.sha256
    ).digest()


def read_secret() -> bytes:
    try:
        found = bytes.fromhex(os.environ.get(SECRET, ""))
    except ValueError:
        found = b""
    if len(found) < 16:
        raise SystemExit("bareboat: the run'"'"'s secret is missing: " + SECRET)
    return found


def ports(secret: bytes, first: int) -> "list[int]":
    """The ports on which the first node may listen. A process that occupies the first cannot know the
    others."""
    found = hmac.new(secret, b"ports", hashlib.sha256).digest()
    more = struct.unpack(">16H", found)[:_MORE_PORTS]
    return [first, *(20000 + number % 12000 for number in more)]


def join(secret: bytes, master: str, port: int, patience_s: float, hello: "dict[str, Any]") -> Line:
    """Connect to the first node with mutual authentication; `hello` is the first message."""
    end = time.monotonic() + patience_s
    first, *others = ports(secret, port)
    turn = 0
    while True:
        reason, taken = "", False
        # The other ports only where another process has the first: do not disturb other listeners.
        for each in [first] if turn % 20 else [first, *others]:
            try:
                return _call(secret, master, each, hello)
            except _Stranger:
                taken = True
            except OSError as error:
                reason = str(error)
        if time.monotonic() > end:
            where = f"{master}:{first}"
            if taken:
                raise SystemExit(f"bareboat: who listens on the first node ({where}) is not of this run")
            raise SystemExit(f"bareboat: the first node ({where}) does not answer: {reason}")
        turn = 0 if taken else turn + 1
        time.sleep(0.1)


class _Stranger(Exception):
    """The process that answered does not know the secret."""


def _call(secret: bytes, master: str, port: int, hello: "dict[str, Any]") -> Line:
    connection = socket.create_connection((master, port), timeout=PROOF_S)
    try:
        end = time.monotonic() + PROOF_S
        place = f"{master}:{port}"
        ours = os.urandom(_NONCE)
        connection.sendall(_MAGIC + ours)
        try:
            answer = exactly(connection, _NONCE + _MAC, end)
        except OSError:
            raise _Stranger from None
        theirs, proof = answer[:_NONCE], answer[_NONCE:]
        if not hmac.compare_digest(proof, _proof(secret, b"lead", place, ours, theirs)):
            raise _Stranger
        connection.sendall(_proof(secret, b"follow", place, ours, theirs))
        line = Line(connection, _proof(secret, b"key", place, ours, theirs), b"follow", b"lead")
        line.send(**hello)
        if line.receive() is None:  # dropped because of too many connections
            raise OSError("the connection ended")
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return line
    except BaseException:
        connection.close()
        raise


def of_the_most(callers: "Any") -> "Any":
    """The connection to drop when too many are not authenticated: the oldest from the address with the most
    connections. `callers`: oldest first."""
    counts: dict[str, int] = {}
    for caller in callers:
        counts[caller.address] = counts.get(caller.address, 0) + 1
    most = max(counts, key=lambda address: counts[address])
    return next(caller for caller in callers if caller.address == most)


class _Caller:
    """A connection that is not yet authenticated."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection = connection
        self.address = address
        self.end = time.monotonic() + PROOF_S
        self.buffer = b""
        self.theirs = b""
        self.ours = b""

    @property
    def missing(self) -> int:
        return (_MAC if self.ours else len(_MAGIC) + _NONCE) - len(self.buffer)


class Door:
    """Accepts connections with the secret in any order; others block nobody."""

    def __init__(self, secret: bytes, master: str, port: int) -> None:
        self._secret = secret
        self._listener, found = listen(secret, master, port)
        self._place = f"{master}:{found}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._callers: dict[int, _Caller] = {}  # by descriptor, the oldest first

    def next(self, end: float) -> "Line | None":
        """The next authenticated connection; None after `end`."""
        while True:
            now = time.monotonic()
            if now >= end:
                return None
            for caller in [each for each in self._callers.values() if each.end <= now]:
                self._drop(caller)
            first = min([end, *(caller.end for caller in self._callers.values())])
            ready = [key.data for key, _ in self._selector.select(max(first - now, 0.001))]
            # Existing connections before new ones.
            for caller in [each for each in ready if each is not None]:
                line = self._hear(caller) if caller.connection.fileno() >= 0 else None
                if line is not None:
                    return line
            if None in ready:
                line = self._accept()
                if line is not None:
                    return line

    def close(self) -> None:
        for caller in list(self._callers.values()):
            self._drop(caller)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> "Line | None":
        try:
            connection, address = self._listener.accept()
        except OSError:  # no descriptors are left, or the caller has disconnected
            if self._callers:
                self._drop(of_the_most(self._callers.values()))
            return None
        connection.setblocking(False)
        caller = _Caller(connection, str(address[0]))
        self._callers[connection.fileno()] = caller
        self._selector.register(connection, selectors.EVENT_READ, caller)
        if len(self._callers) > MOST_CALLERS:
            self._drop(of_the_most(self._callers.values()))
        return self._hear(caller) if connection.fileno() >= 0 else None

    def _drop(self, caller: _Caller) -> None:
        self._let_go(caller)
        caller.connection.close()

    def _let_go(self, caller: _Caller) -> None:
        del self._callers[caller.connection.fileno()]
        self._selector.unregister(caller.connection)

    def _hear(self, caller: _Caller) -> "Line | None":
        """Read at most the next message of the authentication."""
        try:
            data = caller.connection.recv(caller.missing)
            if not data:
                raise OSError("the connection ended")
            caller.buffer += data
            if caller.missing:
                return None
            if caller.ours:
                return self._check(caller)
            if not caller.buffer.startswith(_MAGIC):
                raise OSError("no node")
            caller.theirs, caller.buffer = caller.buffer[len(_MAGIC) :], b""
            caller.ours = os.urandom(_NONCE)
            answer = caller.ours + self._sign(caller, b"lead")
            if caller.connection.send(answer) != len(answer):
                raise OSError("no room")
        except BlockingIOError:
            return None
        except OSError:
            self._drop(caller)
        return None

    def _check(self, caller: _Caller) -> Line:
        if not hmac.compare_digest(caller.buffer, self._sign(caller, b"follow")):
            raise OSError("no proof")
        self._let_go(caller)
        caller.connection.settimeout(PROOF_S)
        caller.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return Line(caller.connection, self._sign(caller, b"key"), b"lead", b"follow")

    def _sign(self, caller: _Caller, what: bytes) -> bytes:
        return _proof(self._secret, what, self._place, caller.theirs, caller.ours)


def listen(secret: bytes, master: str, port: int) -> "tuple[socket.socket, int]":
    """Listen on the first free port of the run."""
    reason = ""
    for each in ports(secret, port):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((master, each))
            listener.listen(4096)
            return listener, each
        except OSError as error:
            reason = str(error)
            listener.close()
    raise SystemExit(f"bareboat: the first node cannot listen on {master}:{port}: {reason}")


"""Starts the image'"'"'s own mpirun on the first node, and lets it start its daemons on the others. A program:
one file without dependencies, for the Python 3.6 or newer of any image, which needs no ssh or srun.

The job script starts it in a container on every node. On the others it connects to the first node and
executes its commands. On the first node it runs mpirun, whose "ssh" is this file again (`agent`): it sends
the command to its node and exits when the command does.

    BAREBOAT_SECRET=HEX python relay.py --node K --nodes N --master ADDRESS --port P --ranks R \\
        --launcher WORDS --check WORDS -- LAUNCHER… CHECK… COMMAND…

Nodes authenticate each other with the run'"'"'s secret by bareboat.mpi.door, whose text precedes this one.

In the launcher'"'"'s words AGENT is replaced by the path of its "ssh", HOSTS by the nodes as in `c1:2,c2:2`, and
NAMES by those without the number of ranks. The MPI check (bareboat.mpi.check_program) runs before the
command.
"""

import argparse
import contextlib
import ctypes
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


#: Seconds to wait for the other nodes; a container may first have to be unpacked.
_PATIENCE_S = 300.0
#: Of a message: the number of a command, and its exit code.
_NUMBERS = ("start", "end", "ended", "code")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(words: "list[str]") -> int:
    if words and words[0] == "agent":
        return _agent(words[1], words[2:])
    options, command = _options(words)
    if options.node:
        return _follow(options)
    start = command[: options.launcher]
    check = command[options.launcher : options.launcher + options.check]
    job = command[options.launcher + options.check :]
    lead = _Lead(options)
    try:
        lead.gather()
        if check:
            code = lead.check(start, check)
            if code:
                return code
        return lead.run(start, job)
    finally:
        lead.close()


def _options(words: "list[str]") -> "tuple[Any, list[str]]":
    parser = argparse.ArgumentParser()
    for name in ("--node", "--nodes", "--port", "--ranks", "--launcher", "--check"):
        parser.add_argument(name, type=int, default=0)
    parser.add_argument("--master", default="127.0.0.1")
    split = words.index("--")
    return parser.parse_args(words[:split]), words[split + 1 :]


# -- processes -------------------------------------------------------------------------------------

#: mpirun and its daemons do not carry the mark by which a run is terminated: they would kill the ranks a
#: second after the signal. So the ranks get the signal directly, have their ten seconds, and mpirun ends
#: after them. The ranks restore the mark from this variable.
_MARK, _HIDDEN_MARK = "BAREBOAT_RUN", "BAREBOAT_MARK"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _unmarked() -> "dict[str, str]":
    environment = {name: value for name, value in os.environ.items() if name != SECRET}  # not for the ranks
    mark = environment.pop(_MARK, None)
    return environment if mark is None else {**environment, _HIDDEN_MARK: mark}


def _leave_to_the_ranks(number: int, frame: "Any") -> None:
    """Ignore the signal: the ranks got it too, and mpirun ends after them."""


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# -- what nodes send each other --------------------------------------------------------------------


def _receive(line: Line) -> "dict[str, Any] | None":
    """The next message; None at the end of the connection, and for one with a value of the wrong type."""
    found = line.receive()
    if found is None or not all(isinstance(found.get(name, 0), int) for name in _NUMBERS):
        return None
    words = found.get("words", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    try:
        return None if b"\0" in b"".join(map(os.fsencode, words)) else found
    except UnicodeEncodeError:
        return None


# -- the program'"'"'s files on a node ---------------------------------------------------------------------


def _folder(secret: bytes) -> str:
    """A directory of this run, at the same unpredictable path on all nodes."""
    folder = "/tmp/bareboat-" + hmac.new(secret, b"folder", hashlib.sha256).hexdigest()[:16]
    shutil.rmtree(folder, ignore_errors=True)  # of the run before a requeue
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        raise SystemExit(f"bareboat: cannot create the directory {folder}: {error.strerror}") from None
    return folder


def _write_agent(folder: str) -> None:
    # The text of this program is its own argument: `python -c TEXT`.
    given = _read("/proc/self/cmdline").split(b"\0")
    text = given[given.index(b"-c") + 1] if b"-c" in given[:3] else _read(__file__)
    with open(os.path.join(folder, "relay.py"), "wb") as program:
        program.write(text)
    agent = os.path.join(folder, "agent")
    with open(agent, "w") as script:
        script.write(f'"'"'#!/bin/sh\nexec "{sys.executable}" "{folder}/relay.py" agent "{folder}/socket" "$@"\n'"'"')
    os.chmod(agent, 0o700)


# -- the other nodes -------------------------------------------------------------------------------


def _follow(options: "Any") -> int:
    secret = read_secret()
    folder = _folder(secret)
    try:
        # ORTE'"'"'s daemons require the "ssh" too, although they never use it.
        _write_agent(folder)
        return _obey(options, secret)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _obey(options: "Any", secret: bytes) -> int:
    hello = {"node": options.node, "host": socket.gethostname()}
    line = join(secret, options.master, options.port, _PATIENCE_S, hello)
    children: dict[int, subprocess.Popen[bytes]] = {}
    while True:
        message = _receive(line)
        if message is None or "bye" in message:
            for child in children.values():
                _end(child)
            return 0 if message is not None else 1
        if "start" in message:
            number = message["start"]
            # Like sshd: the words are one line for a shell.
            child = subprocess.Popen(
                ["/bin/sh", "-c", " ".join(message.get("words", []))],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=_unmarked(),
                preexec_fn=_die_with_parent,
            )
            children[number] = child
            threading.Thread(target=_report, args=(line, number, child), daemon=True).start()
        elif "end" in message and message["end"] in children:
            _end(children[message["end"]])


def _report(line: Line, number: int, child: "subprocess.Popen[bytes]") -> None:
    code = child.wait()
    with contextlib.suppress(OSError):
        line.send(ended=number, code=code if code >= 0 else 128 - code)


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGTERM)


# -- the first node --------------------------------------------------------------------------------


class _Lead:
    def __init__(self, options: "Any") -> None:
        self._options = options
        self._secret = read_secret() if options.nodes > 1 else b""
        self._folder = _folder(self._secret) if self._secret else tempfile.mkdtemp(prefix="bareboat-")
        self._followers: dict[str, Line] = {}
        self._hosts = [socket.gethostname()]
        self._waiting: dict[int, tuple[str, Line]] = {}
        self._numbers = iter(range(1, 10**9))
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._lost = ""

    def gather(self) -> None:
        """Start the server for the agents, and wait for the other nodes."""
        self._open_for_agents()
        others = self._options.nodes - 1
        if others:
            door = Door(self._secret, self._options.master, self._options.port)
            end = time.monotonic() + _PATIENCE_S
            found: dict[int, tuple[str, Line]] = {}
            while len(found) < others:
                line = door.next(end)
                if line is None:
                    raise SystemExit(f"bareboat: only {len(found) + 1} of {others + 1} nodes came")
                self._welcome(line, found)
            door.close()
            for _, (host, line) in sorted(found.items()):
                self._hosts.append(host)
                self._followers[host] = line
                threading.Thread(target=self._hear, args=(host, line), daemon=True).start()

    def _welcome(self, line: Line, found: "dict[int, tuple[str, Line]]") -> None:
        """Register a node. It may connect again after it lost the first connection; the later one counts."""
        said = line.receive() or {}
        node, host = said.get("node"), said.get("host")
        if not isinstance(node, int) or not 0 < node < self._options.nodes or not isinstance(host, str):
            line.close()
            return
        try:
            line.send(welcome=True)
        except OSError:
            line.close()
            return
        line.connection.settimeout(None)
        found[node] = (host, line)

    def _hear(self, host: str, line: Line) -> None:
        while True:
            message = _receive(line)
            if message is None:
                self._lose(host)
                return
            with self._lock:
                _, agent = self._waiting.pop(message.get("ended", 0), ("", None))
            if agent is not None:
                with contextlib.suppress(OSError):
                    agent.send(code=message.get("code", 255))

    def _lose(self, host: str) -> None:
        with self._lock:
            self._lost = self._lost or host
            if self._child is not None:
                self._child.terminate()
            left = [number for number, (there, _) in self._waiting.items() if there == host]
            agents = [self._waiting.pop(number)[1] for number in left]
        for agent in agents:
            with contextlib.suppress(OSError):
                agent.send(code=255)

    def _open_for_agents(self) -> None:
        _write_agent(self._folder)
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.path.join(self._folder, "socket"))
        server.listen(128)
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    @property
    def _agent(self) -> str:
        return os.path.join(self._folder, "agent")

    def _serve(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=self._start_there, args=(Line(connection),), daemon=True).start()

    def _start_there(self, agent: Line) -> None:
        asked = agent.receive() or {}
        follower = self._followers.get(str(asked.get("host")))
        if follower is None:
            agent.send(code=255, error="the run has no node {!r}".format(asked.get("host")))
            return
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = (str(asked["host"]), agent)
        try:
            follower.send(start=number, words=asked["words"])
        except OSError:
            self._lose(str(asked["host"]))
        if agent.receive() is None:  # mpirun has ended its "ssh"
            with self._lock:
                gone = self._waiting.pop(number, None)
            if gone is not None:
                with contextlib.suppress(OSError):
                    follower.send(end=number)

    def check(self, start: "list[str]", check: "list[str]") -> int:
        """Run the check. The ranks'"'"' output is kept, and shown when the check fails."""
        log = os.path.join(os.environ.get("BAREBOAT_RUN_DIR") or self._folder, "mpi_check.log")
        with open(log, "wb") as stream:
            code = self.run(start, check, output=stream)
        if code:
            sys.stderr.write(_read(log).decode(errors="replace")[-4000:])
            sys.stderr.write("bareboat: the ranks did not find each other; the job is not started\n")
            return 3
        return 0

    def run(self, start: "list[str]", command: "list[str]", *, output: "Any" = None) -> int:
        ranks = self._options.ranks
        given = {
            "AGENT": self._agent,
            "HOSTS": ",".join(f"{host}:{ranks}" for host in self._hosts),
            "NAMES": ",".join(self._hosts),
        }
        words = [given.get(word, word) for word in start] + command
        stderr = None if output is None else subprocess.STDOUT
        stdin = None if output is None else subprocess.DEVNULL
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave_to_the_ranks)
        with self._lock:
            self._child = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=output,
                stderr=stderr,
                env=_unmarked(),
                preexec_fn=_die_with_parent,
            )
            if self._lost:
                self._child.terminate()
        code = self._child.wait()
        self._child = None
        if self._lost:
            sys.stderr.write(f"bareboat: the node {self._lost} was lost\n")
            return code or 1
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        self._child = None
        for line in self._followers.values():
            with contextlib.suppress(OSError):
                line.send(bye=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


# -- mpirun'"'"'s "ssh" ----------------------------------------------------------------------------------


def _agent(path: str, words: "list[str]") -> int:
    """`ssh [options] HOST COMMAND…`; the options are ignored."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-p", "-l", "-o", "-i", "-F") else words[1:]
    if len(words) < 2:
        sys.stderr.write("bareboat: the launcher asked for no command\n")
        return 255
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    line = Line(connection)
    line.send(host=words[0].rpartition("@")[2], words=words[1:])
    answer = line.receive() or {}
    if "error" in answer:
        sys.stderr.write("bareboat: {}\n".format(answer["error"]))
    return int(answer.get("code", 255))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
' --nodes 2 --ranks 2 --node "$BAREBOAT_NODE" --master "$BAREBOAT_MASTER" --port "$BAREBOAT_PORT" --launcher 20 --check 15 -- \
  /usr/bin/mpirun --mca plm rsh --mca plm_rsh_agent AGENT --mca plm_rsh_no_tree_spawn 1 --leave-session-attached --host HOSTS -n 4 --map-by ppr:2:node --bind-to none --oversubscribe /env/bin/python -c 'import sys
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
' --size 4 --timeout 120 --tell OMPI_MCA_btl_base_verbose=1 --tell OMPI_MCA_mtl_base_verbose=1 --tell OMPI_MCA_pml_base_verbose=10 --tell UCX_LOG_LEVEL=info /bin/sh -c 'RANK=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}
LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}}
[ -z "${BAREBOAT_MARK:-}" ] || BAREBOAT_RUN=$BAREBOAT_MARK
export RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE ${BAREBOAT_RUN+BAREBOAT_RUN}
"$@"
code=$?
[ -z "${BAREBOAT_RUN_DIR:-}" ] || echo "$RANK $code" >> "$BAREBOAT_RUN_DIR/exits.$RANK"
exit "$code"
' rank python digits.py --epochs 40
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

seal \
  --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
  --setenv HOME /home/ada \
  --setenv LANG C.UTF-8 \
  --setenv LOCAL_WORLD_SIZE 2 \
  --setenv LOGNAME ada \
  --setenv OMP_NUM_THREADS 1 \
  --setenv PATH /env/bin:/usr/bin \
  --setenv PYTHONNOUSERSITE 1 \
  --setenv TZ Europe/Rome \
  --setenv USER ada \
  --setenv WORLD_SIZE 4
start_command job
exec {sealed}<&-
wait "$child"
code=$?

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

# The run's processes on different nodes authenticate each other with it.
(
  umask 077
  rm -f "$BAREBOAT_CONTROL/secret"
  set -C
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$BAREBOAT_CONTROL/secret"
) || finish 3

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
