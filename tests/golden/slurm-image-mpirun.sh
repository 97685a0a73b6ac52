#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher image-mpirun, scheduler slurm
# Written by Fairlead 0.1.0, plan sha256:ef44bbe8b52b.
# It needs bash and what is named under "What must be there", but no Fairlead.
set -u

# Every process of this run carries this mark in its environment, whatever session or container it moves
# to. This shell itself does not: it got the mark as an argument, and does not export it.
unset FAIRLEAD_RUN

FAIRLEAD_NODES=2
FAIRLEAD_JOB="${SLURM_JOB_ID:-$$}"
# The scheduler starts this script on the first node, which starts it with --node on every node.
# bash SCRIPT --node|--rank NODE RUN FOLDER MASTER PORT WHAT;  bash SCRIPT --signal NODE RUN NAME
# NODE is a number, or the name of the variable that holds it.
part=--first
case ${1:-} in
  --node | --rank)
    part=$1 what=$7 FAIRLEAD_NODE=$(($2)) FAIRLEAD_RUN=$3 FAIRLEAD_RUN_DIR=$4
    FAIRLEAD_MASTER=$5 FAIRLEAD_PORT=$6 ;;
  --signal) part=$1 FAIRLEAD_RUN=$3 ;;
  *)
    FAIRLEAD_RUN="${1:-digits-$FAIRLEAD_JOB}"
    FAIRLEAD_RUN_DIR=/home/ada/digits/fairlead-runs/digits-$FAIRLEAD_JOB ;;
esac
read -r FAIRLEAD_HOST < /proc/sys/kernel/hostname # what uname -n says, and no program to start
HERE=" on $FAIRLEAD_HOST"

run_pids() { # the run's processes on this node
  grep -lszxF "FAIRLEAD_RUN=$FAIRLEAD_RUN" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

end_run() { # ask every process to end, wait up to 10 s, then make them
  local signal pids deadline
  for signal in TERM KILL; do
    pids=$(run_pids)
    [ -n "$pids" ] || return
    # shellcheck disable=SC2086
    kill -s "$signal" $pids 2>/dev/null
    deadline=$((SECONDS + 10))
    while [ "$SECONDS" -lt "$deadline" ]; do
      [ -n "$(run_pids)" ] || return
      sleep 0.1
    done
  done
}

deliver() { # $1: a signal for the run's processes on this node
  local pid caught
  if [ "$1" = TERM ]; then end_run; return; fi
  for pid in $(run_pids); do # one that does not handle it would die of it
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
    (( (0x${caught:-0} >> ($(kill -l "$1") - 1)) & 1 )) && kill -s "$1" "$pid"
  done
}

if [ "$part" = --signal ]; then # from the first node
  deliver "$4"
  exit
fi

if [ "$part" != --first ]; then
trap 'echo "$?" >> "$FAIRLEAD_RUN_DIR/ends.$FAIRLEAD_HOST"' EXIT

stop() { # $1: exit code
  trap '' TERM INT HUP
  end_run
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP

need() { # $1: path, $2: what it is, $3: what to do
  [ -e "$1" ] && return
  printf 'fairlead: %s is not there%s: %s\n  try: %s\n' "$2" "$HERE" "$1" "$3" >&2
  exit 3
}

# What must be there.
need /scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 'a layer of the image' 'fairlead capture --fresh'
need /opt/bwrap 'the engine bubblewrap' 'fairlead doctor'
need /home/ada/digits 'the working folder' 'mkdir -p /home/ada/digits'

[ -e /dev/fd/0 ] || exec </dev/null
# The job: in the background, because bash runs a trap only between commands or during `wait`. It
# keeps the standard input, and the signals that bash takes from what it puts there.
(
  trap - INT QUIT
  exec /opt/bwrap \
  --bind /scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa / \
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
  ${FAIRLEAD_METER_DIR:+--bind "$FAIRLEAD_METER_DIR" /run/fairlead/FAIRLEAD_METER_DIR} \
  ${FAIRLEAD_RUN_DIR:+--bind "$FAIRLEAD_RUN_DIR" /run/fairlead/FAIRLEAD_RUN_DIR} \
  --remount-ro / \
  --clearenv \
  --setenv FAIRLEAD_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
  --setenv HOME /home/ada \
  --setenv LANG C.UTF-8 \
  --setenv LOCAL_WORLD_SIZE 2 \
  --setenv LOGNAME ada \
  --setenv OMP_NUM_THREADS 1 \
  --setenv PATH /env/bin:/usr/bin \
  --setenv PYTHONNOUSERSITE 1 \
  --setenv TZ Europe/Rome \
  --setenv USER ada \
  --setenv WORLD_SIZE 4 \
  ${FAIRLEAD_RUN:+--setenv FAIRLEAD_RUN "$FAIRLEAD_RUN"} \
  ${FAIRLEAD_METER_DIR:+--setenv FAIRLEAD_METER_DIR /run/fairlead/FAIRLEAD_METER_DIR} \
  ${FAIRLEAD_GATE:+--setenv FAIRLEAD_GATE "$FAIRLEAD_GATE"} \
  ${FAIRLEAD_RUN_DIR:+--setenv FAIRLEAD_RUN_DIR /run/fairlead/FAIRLEAD_RUN_DIR} \
  --chdir /home/ada/digits \
  --die-with-parent \
  -- \
  /env/bin/python -c '"""Starts the image'"'"'s own mpirun on the first node, and lets it start its daemons on the others. A program:
one file without dependencies, for the Python 3.6 or newer of any image; no ssh or srun is needed in there.

The job script starts it in a container on every node. On the others it calls the first node, and does what it
is told. On the first node it runs mpirun, whose "ssh" is this file again (`agent`): it hands the command over
to the node that it is for, and ends as that ends. Nodes prove to each other that they know the run'"'"'s secret.

    python relay.py --node K --nodes N --master ADDRESS --port P --secret FILE --ranks R \\
        --launcher WORDS --proof WORDS -- LAUNCHER… PROOF… COMMAND…

In the launcher'"'"'s words AGENT stands for the path of its "ssh", HOSTS for the nodes as in `c1:2,c2:2`, and
NAMES for those without the number of ranks. The proof (fairlead.mpi.proof) is run before the command.
"""

import argparse
import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

#: Seconds until the other nodes are there; a container may first have to be unpacked.
_PATIENCE_S = 300.0
#: A message is a command with its environment, of a few kB.
_MOST_BYTES = 2**22

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
    proof = command[options.launcher : options.launcher + options.proof]
    job = command[options.launcher + options.proof :]
    lead = _Lead(options)
    try:
        lead.gather()
        if proof:
            code = lead.prove(start, proof)
            if code:
                return code
        return lead.run(start, job)
    finally:
        lead.close()


def _options(words: "list[str]") -> "tuple[Any, list[str]]":
    parser = argparse.ArgumentParser()
    for name in ("--node", "--nodes", "--port", "--ranks", "--launcher", "--proof"):
        parser.add_argument(name, type=int, default=0)
    parser.add_argument("--master", default="127.0.0.1")
    parser.add_argument("--secret", default="")
    split = words.index("--")
    return parser.parse_args(words[:split]), words[split + 1 :]


# -- processes -------------------------------------------------------------------------------------

#: mpirun and its daemons do not carry the mark by which a run is ended, because they would kill the ranks a
#: second after they were told. So the ranks are told directly, have their ten seconds, and mpirun ends after
#: them. The ranks take the mark up again from this variable.
_MARK, _HIDDEN_MARK = "FAIRLEAD_RUN", "FAIRLEAD_MARK"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _unmarked() -> "dict[str, str]":
    environment = dict(os.environ)
    mark = environment.pop(_MARK, None)
    return environment if mark is None else {**environment, _HIDDEN_MARK: mark}


def _leave_to_the_ranks(number: int, frame: "Any") -> None:
    """They were told too; when they have ended, so does mpirun."""


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# -- talking -----------------------------------------------------------------------------------------


class _Line:
    """A connection that carries one JSON object a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._reader = connection.makefile("rb")
        self._lock = threading.Lock()

    def send(self, **message: "Any") -> None:
        with self._lock:
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> "dict[str, Any] | None":
        """None at the end of the connection."""
        try:
            line = self._reader.readline(_MOST_BYTES)
            found = json.loads(line.decode()) if line else None
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def _sign(secret: bytes, who: str, *nonces: str) -> str:
    return hmac.new(secret, " ".join((who, *nonces)).encode(), hashlib.sha256).hexdigest()


def _secret(path: str) -> bytes:
    with open(path, "rb") as stream:
        found = stream.read().strip()
    if len(found) < 16:
        raise SystemExit("fairlead: the run'"'"'s secret is not there: " + path)
    return found


def _nonce() -> str:
    return os.urandom(16).hex()


def _folder(secret: bytes) -> str:
    """A folder of this run'"'"'s, at the same path on all nodes, that nobody else can foretell."""
    folder = "/tmp/fairlead-" + hashlib.sha256(secret).hexdigest()[:16]
    shutil.rmtree(folder, ignore_errors=True)  # of the run before a requeue
    os.mkdir(folder, 0o700)
    return folder


def _write_agent(folder: str) -> None:
    # The text of this program is an argument of ours: `python -c TEXT`.
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
    secret = _secret(options.secret)
    folder = _folder(secret)
    try:
        # ORTE'"'"'s daemons want to see the "ssh" too, which they never use.
        _write_agent(folder)
        return _obey(options, secret)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _obey(options: "Any", secret: bytes) -> int:
    line = _Line(_connect(options.master, options.port))
    ours = _nonce()
    line.send(nonce=ours)
    answer = line.receive() or {}
    theirs = str(answer.get("nonce"))
    if not hmac.compare_digest(str(answer.get("proof")), _sign(secret, "lead", ours, theirs)):
        raise SystemExit("fairlead: who listens on the first node is not of this run")
    line.send(proof=_sign(secret, "follow", theirs, ours), host=socket.gethostname(), node=options.node)
    children: dict[int, subprocess.Popen[bytes]] = {}
    while True:
        message = line.receive()
        if message is None or "bye" in message:
            for child in children.values():
                _end(child)
            return 0 if message is not None else 1
        if "start" in message:
            number = int(message["start"])
            # As sshd does it: the words are one line for a shell.
            child = subprocess.Popen(
                ["/bin/sh", "-c", " ".join(message["words"])],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=_unmarked(),
                preexec_fn=_die_with_parent,
            )
            children[number] = child
            threading.Thread(target=_report, args=(line, number, child), daemon=True).start()
        elif "end" in message and int(message["end"]) in children:
            _end(children[int(message["end"])])


def _report(line: _Line, number: int, child: "subprocess.Popen[bytes]") -> None:
    code = child.wait()
    with contextlib.suppress(OSError):
        line.send(ended=number, code=code if code >= 0 else 128 - code)


def _connect(master: str, port: int) -> socket.socket:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection = socket.create_connection((master, port), timeout=10)
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit(
                    f"fairlead: the first node ({master}:{port}) does not answer: {error}"
                ) from None
            time.sleep(0.1)


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGTERM)


# -- the first node --------------------------------------------------------------------------------


class _Lead:
    def __init__(self, options: "Any") -> None:
        self._options = options
        self._secret = _secret(options.secret) if options.nodes > 1 else b""
        self._folder = _folder(self._secret) if self._secret else tempfile.mkdtemp(prefix="fairlead-")
        self._followers: dict[str, _Line] = {}
        self._hosts = [socket.gethostname()]
        self._waiting: dict[int, _Line] = {}
        self._numbers = iter(range(1, 10**9))
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._lost = ""

    def gather(self) -> None:
        """Open the way for the agents, and wait for the other nodes."""
        self._open_for_agents()
        others = self._options.nodes - 1
        if others:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._options.master, self._options.port))
            listener.listen(128)
            end = time.monotonic() + _PATIENCE_S
            found: dict[int, tuple[str, _Line]] = {}
            while len(found) < others:
                listener.settimeout(max(end - time.monotonic(), 0.001))
                try:
                    connection, _ = listener.accept()
                except OSError:
                    raise SystemExit(f"fairlead: only {len(found) + 1} of {others + 1} nodes came") from None
                self._welcome(connection, found)
            listener.close()
            for _, (host, line) in sorted(found.items()):
                self._hosts.append(host)
                self._followers[host] = line
                threading.Thread(target=self._hear, args=(host, line), daemon=True).start()

    def _welcome(self, connection: socket.socket, found: "dict[int, tuple[str, _Line]]") -> None:
        connection.settimeout(10)  # a stranger must not hold us up
        line = _Line(connection)
        theirs, ours = str((line.receive() or {}).get("nonce")), _nonce()
        try:
            line.send(nonce=ours, proof=_sign(self._secret, "lead", theirs, ours))
        except OSError:
            return
        said = line.receive() or {}
        if not hmac.compare_digest(str(said.get("proof")), _sign(self._secret, "follow", ours, theirs)):
            line.close()
            return
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found[int(said["node"])] = (str(said["host"]), line)

    def _hear(self, host: str, line: _Line) -> None:
        while True:
            message = line.receive()
            if message is None:
                if self._child is not None and not self._lost:
                    self._lost = host
                    self._child.terminate()
                return
            with self._lock:
                agent = self._waiting.pop(int(message.get("ended", 0)), None)
            if agent is not None:
                with contextlib.suppress(OSError):
                    agent.send(code=int(message["code"]))

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
            threading.Thread(target=self._start_there, args=(_Line(connection),), daemon=True).start()

    def _start_there(self, agent: _Line) -> None:
        asked = agent.receive() or {}
        follower = self._followers.get(str(asked.get("host")))
        if follower is None:
            agent.send(code=255, error="there is no node {!r} in this run".format(asked.get("host")))
            return
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = agent
        follower.send(start=number, words=asked["words"])
        if agent.receive() is None:  # mpirun has ended its "ssh"
            with self._lock:
                gone = self._waiting.pop(number, None)
            if gone is not None:
                with contextlib.suppress(OSError):
                    follower.send(end=number)

    def prove(self, start: "list[str]", proof: "list[str]") -> int:
        """What the ranks say is kept, and shown when it is no proof."""
        log = os.path.join(os.environ.get("FAIRLEAD_RUN_DIR") or self._folder, "proof.log")
        with open(log, "wb") as stream:
            code = self.run(start, proof, output=stream)
        if code:
            sys.stderr.write(_read(log).decode(errors="replace")[-4000:])
            sys.stderr.write("fairlead: the ranks did not find each other; the job is not started\n")
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
        self._child = subprocess.Popen(
            words,
            stdin=stdin,
            stdout=output,
            stderr=stderr,
            env=_unmarked(),
            preexec_fn=_die_with_parent,
        )
        code = self._child.wait()
        self._child = None
        if self._lost:
            sys.stderr.write(f"fairlead: the node {self._lost} was lost\n")
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
    """`ssh [options] HOST COMMAND…`; the options mean nothing here."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-p", "-l", "-o", "-i", "-F") else words[1:]
    if len(words) < 2:
        sys.stderr.write("fairlead: the launcher asked for no command\n")
        return 255
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    line = _Line(connection)
    line.send(host=words[0].rpartition("@")[2], words=words[1:])
    answer = line.receive() or {}
    if "error" in answer:
        sys.stderr.write("fairlead: {}\n".format(answer["error"]))
    return int(answer.get("code", 255))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
' --nodes 2 --ranks 2 --node "$FAIRLEAD_NODE" --master "$FAIRLEAD_MASTER" --port "$FAIRLEAD_PORT" --secret /run/fairlead/FAIRLEAD_RUN_DIR/secret --launcher 20 --proof 15 -- \
  /usr/bin/mpirun --mca plm rsh --mca plm_rsh_agent AGENT --mca plm_rsh_no_tree_spawn 1 --leave-session-attached --host HOSTS -n 4 --map-by ppr:2:node --bind-to none --oversubscribe /env/bin/python -c '"""The proof that N started ranks are one world of N. A program: one file without dependencies, for the Python
3.6 or newer of any image.

    python proof.py --size 2 [--timeout 60] [--library /path/libmpi.so.40] [--tell NAME=VALUE]…

NAME=VALUE: variables by which the library says what way it takes to other nodes; one rank a node sets them.
Every rank prints one line, `fairlead-proof {"rank": 0, "size": 2, …}`, and ends with 0 when the world has the
size that it should have and a message of a mebibyte went round. It ends with 3 when the world has another
size: the silent failure, in which every rank believes that it is alone, trains a model of its own and exits
with 0. With 4 when MPI fails, is not there, or cannot be used by the mpi4py that is; with 1 when it hangs.
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
MARK = "fairlead-proof "

#: Enough for a message to take the way of large ones: single-copy between processes, rendezvous on a network.
_WORDS = 2**18

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Measured = tuple[int, int, int, str, str]


def main(arguments: "list[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(description="prove that the ranks are one world")
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
        sys.stderr.write(f"fairlead: MPI cannot be used: {error}\n")
        return BROKEN
    finally:
        faulthandler.cancel_dump_traceback_later()
    _say(rank=rank, size=size, host=os.uname().nodename, library=library, way=way)
    if size != options.size:
        sys.stderr.write(wrong_size(size, options.size, library) + "\n")
        return WRONG_SIZE
    if total != size * (size + 1) // 2:
        sys.stderr.write(f"fairlead: a sum over the ranks gave {total}: the messages are not right\n")
        return BROKEN
    return RIGHT


def _speaks_for_node() -> bool:
    """Thousands of ranks would say the same: one of each node does, as the launchers number them."""
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    return next((os.environ[name] for name in names if os.environ.get(name)), "0") == "0"


def wrong_size(size: int, wanted: int, library: str) -> str:
    what = f"{wanted} ranks were started, and each is alone" if size == 1 else f"{wanted} ranks were started"
    return (
        f"fairlead: the MPI world has size {size}, not {wanted}: {what}. "
        f"Whoever started them does not speak to {library}."
    )


def _say(**facts: "Any") -> None:
    # One write: the lines of several ranks must not mix.
    sys.stdout.flush()
    os.write(1, (MARK + json.dumps(facts, sort_keys=True) + "\n").encode())


def _measure(path: "str | None") -> "Measured":
    """Rank, size, the sum of rank + 1 over a mebibyte, the library'"'"'s own words, and the way it was asked."""
    found = None if path else importlib.util.find_spec("mpi4py")
    if found is not None and found.has_location:  # not a mere folder of that name
        return _by_mpi4py(_mpi4py())
    return _by_ctypes(_load(path))


def _mpi4py() -> "Any":
    """Where it is installed it is what the job imports: another way to MPI would prove nothing of it."""
    try:
        from mpi4py import MPI
    except Exception as error:  # of mpi4py'"'"'s wheels, which look for a libmpi by themselves: RuntimeError
        said = " ".join(str(error).split())
        raise RuntimeError(
            f"mpi4py is installed, but cannot be imported: {said}. Either its libmpi is not there, or it was "
            "built for another one; try: python -m pip install --force-reinstall --no-binary=mpi4py mpi4py, "
            "or uninstall it, if nothing imports it"
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
            # OpenMPI'"'"'s plugins expect to find its symbols.
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
[ -z "${FAIRLEAD_MARK:-}" ] || FAIRLEAD_RUN=$FAIRLEAD_MARK
export RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE ${FAIRLEAD_RUN+FAIRLEAD_RUN}
"$@"
code=$?
[ -z "${FAIRLEAD_RUN_DIR:-}" ] || echo "$RANK $code" >> "$FAIRLEAD_RUN_DIR/exits.$RANK"
exit "$code"
' rank python digits.py --epochs 40
) <&0 &
child=$!
wait "$child"
code=$?

[ "$code" -eq 0 ] || end_run
exit "$code"

fi

# From here on: the first node.
[ -d "$FAIRLEAD_RUN_DIR" ] || mkdir -p "$FAIRLEAD_RUN_DIR" || exit 3
printf '%(%s)T %s %s\n' -1 "$FAIRLEAD_HOST" "$FAIRLEAD_JOB" >> "$FAIRLEAD_RUN_DIR/starts"
mapfile -t begun < "$FAIRLEAD_RUN_DIR/starts"
starts=${#begun[@]}
if [ "$starts" -gt 1 ]; then
  rm -f "$FAIRLEAD_RUN_DIR"/{exits,ends,over}.* "$FAIRLEAD_RUN_DIR"/{exit_code,signals}
  [ ! -d "$FAIRLEAD_RUN_DIR/logs" ] || mv "$FAIRLEAD_RUN_DIR/logs" "$FAIRLEAD_RUN_DIR/logs.$((starts - 1))"
fi
script=$FAIRLEAD_RUN_DIR/job.sh
[ -e "$script" ] || cp "$0" "$script" || exit 3

finish() { # $1: exit code; kept in a file, because schedulers forget
  printf '%s %(%s)T\n' "$1" -1 > "$FAIRLEAD_RUN_DIR/exit_code" # who reads it before the line is there waits
  exit "$1"
}

everywhere() { # run this script on every node, with these arguments after the node's number
  local how=$1
  shift
  if [ "$FAIRLEAD_NODES" -eq 1 ]; then
    bash "$script" "$how" 0 "$@"
  else
    on_each_node "$script" "$how" "$@"
  fi
}

pass_on() { # a signal of the scheduler's, for the ranks on all nodes
  everywhere --signal "$FAIRLEAD_RUN" "$1"
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

await() { # the exit code of a child, through any number of signals
  local status
  while :; do
    interrupted=
    wait "$1"
    status=$?
    [ -n "$interrupted" ] || return "$status"
  done
}

# By this the run's processes on different nodes know each other.
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$FAIRLEAD_RUN_DIR/secret")

# Of "c[01-03,07],x9" what scontrol makes, which reads the site's configuration before; it is asked for many
# nodes, and for names of another form.
hosts() {
  local rest=$SLURM_JOB_NODELIST prefix range first number found=()
  while [ "$FAIRLEAD_NODES" -le 64 ] && [[ $rest =~ ^([^][,]+)(\[([0-9,-]+)\])?(,|$) ]]; do
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

on_each_node() {
  local script=$1 how=$2
  shift 2
  srun --nodes="$FAIRLEAD_NODES" --ntasks="$FAIRLEAD_NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
    --overlap --mpi=none bash "$script" "$how" SLURM_NODEID "$@"
}

again() { scontrol requeue "$SLURM_JOB_ID" && echo "$SLURM_JOB_ID"; }

agains=()
[ ! -e "$FAIRLEAD_RUN_DIR/agains" ] || mapfile -t agains < "$FAIRLEAD_RUN_DIR/agains"
if [ "$((starts - ${#agains[@]}))" -gt 2 ]; then
  printf 'fairlead: this job lost its nodes twice; it is not started a third time\n' >&2
  finish 70
fi

mapfile -t hosts < <(hosts)
if [ "${#hosts[@]}" -ne "$FAIRLEAD_NODES" ]; then
  printf 'fairlead: the job is for %s nodes, and has: %s\n' "$FAIRLEAD_NODES" "${hosts[*]}" >&2
  finish 3
fi
printf '%s\n' "${hosts[@]}" > "$FAIRLEAD_RUN_DIR/hosts"
# Ranks meet at the first node, by its address: names may not resolve in an image.
FAIRLEAD_MASTER=${hosts[0]}
while read -r address _; do
  [[ $address == 127.* ]] || { FAIRLEAD_MASTER=$address; break; }
done < <(getent ahostsv4 "${hosts[0]}")

# A port that nobody listens on here; jobs begin to look at different ones. (To read the kernel's table of
# sockets takes 15 ms.)
FAIRLEAD_PORT=$((20000 + ${FAIRLEAD_JOB//[!0-9]/}0 / 10 % 20000))
while { true < "/dev/tcp/127.0.0.1/$FAIRLEAD_PORT" || true < "/dev/tcp/$FAIRLEAD_MASTER/$FAIRLEAD_PORT"; } \
  2> /dev/null; do
  FAIRLEAD_PORT=$((FAIRLEAD_PORT + 1))
done

run() { # $1: job or proof
  everywhere --node "$FAIRLEAD_RUN" "$FAIRLEAD_RUN_DIR" "$FAIRLEAD_MASTER" "$FAIRLEAD_PORT" "$1" &
  await "$!"
}

run job
code=$?

# The first rank that failed by itself says what went wrong; its exit code is ours.
if [ "$code" -ne 0 ]; then
  failed=$(cat "$FAIRLEAD_RUN_DIR"/exits.* 2>/dev/null | grep -v ' 0$')
  first=$(grep -vE ' (129|130|137|143)$' <<< "$failed" | head -n 1)
  read -r rank status <<< "${first:-$(head -n 1 <<< "$failed")}"
  if [ -n "${status:-}" ]; then
    code=$status
  fi
fi

# 75 (EX_TEMPFAIL): the job has saved its state and wants to go on later.
if [ "$code" -eq 75 ]; then
  printf 'fairlead: the job asks to go on later: back into the queue\n' >&2
  trap '' TERM INT HUP # which the scheduler may send to put it there; it is not the end of the run
  if again > "$FAIRLEAD_RUN_DIR/again"; then
    tail -n 1 "$FAIRLEAD_RUN_DIR/again" >> "$FAIRLEAD_RUN_DIR/agains"
    exit "${AGAIN:-75}"
  fi
fi

finish "$code"
