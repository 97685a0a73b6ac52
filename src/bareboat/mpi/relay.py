"""Starts the image's own mpirun on the first node, and lets it start its daemons on the others. A program:
one file without dependencies, for the Python 3.6 or newer of any image, which needs no ssh or srun.

The job script starts it in a container on every node. On the others it connects to the first node and
executes its commands. On the first node it runs mpirun, whose "ssh" is this file again (`agent`): it sends
the command to its node and exits when the command does.

    BAREBOAT_SECRET=HEX python relay.py --node K --nodes N --master ADDRESS --port P --ranks R \\
        --launcher WORDS --check WORDS -- LAUNCHER… CHECK… COMMAND…

Nodes authenticate each other with the run's secret by bareboat.mpi.authentication, whose text precedes
this one.

In the launcher's words AGENT is replaced by the path of its "ssh", HOLDS by the words before the name of its
daemons, HOSTS by the nodes as in `c1:2,c2:2`, and NAMES by those without the number of ranks. The MPI check
(bareboat.mpi.check_program) runs before the command.
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

from bareboat.mpi.authentication import SECRET, Door, Line, join, read_secret

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

#: mpirun and its daemons would kill the ranks a second after a signal for the run. So they do not carry the
#: mark by which a run is terminated, and these signals wait for them: the ranks get them directly, and mpirun
#: ends after them. The ranks restore the mark from this variable.
_FOR_RANKS = (signal.SIGINT, signal.SIGTERM)
_MARK, _HIDDEN_MARK = "BAREBOAT_RUN", "BAREBOAT_MARK"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _unmarked() -> "dict[str, str]":
    environment = {name: value for name, value in os.environ.items() if name != SECRET}  # not for the ranks
    mark = environment.pop(_MARK, None)
    return environment if mark is None else {**environment, _HIDDEN_MARK: mark}


def _leave_to_the_ranks() -> None:
    """Ignore these signals: the ranks get them too, and mpirun and what is beside it end after them."""
    for number in _FOR_RANKS:
        signal.signal(number, lambda *_: None)


def _begin_launcher() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_RANKS)
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


# -- the program's files on a node ---------------------------------------------------------------------


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
        script.write(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/relay.py" agent "{folder}/socket" "$@"\n')
    os.chmod(agent, 0o700)


# -- the other nodes -------------------------------------------------------------------------------


def _follow(options: "Any") -> int:
    secret = read_secret()
    folder = _folder(secret)
    try:
        # ORTE's daemons require the "ssh" too, although they never use it.
        _write_agent(folder)
        return _obey(options, secret, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _obey(options: "Any", secret: bytes, folder: str) -> int:
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
            _leave_to_the_ranks()
            # Like sshd: the words are one line for a shell. OpenMPI's line reads ./.profile: with that of the
            # home the ranks would have another PATH than those of the first node.
            child = subprocess.Popen(
                ["/bin/sh", "-c", "trap : TERM INT; " + " ".join(message.get("words", []))],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=_unmarked(),
                preexec_fn=_begin_launcher,
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
            os.killpg(child.pid, signal.SIGHUP)


# -- the first node --------------------------------------------------------------------------------


class _Lead:
    def __init__(self, options: "Any") -> None:
        self._options = options
        self._secret = read_secret() if options.nodes > 1 else b""
        self._folder = (
            _folder(self._secret) if self._secret else tempfile.mkdtemp(prefix="bareboat-", dir="/tmp")
        )
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
                self._child.send_signal(signal.SIGHUP)
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
        """Run the check. The ranks' output is kept, and shown when the check fails."""
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
        words = [given.get(word, word).replace("HOLDS", self._agent + " hold") for word in start] + command
        stderr = None if output is None else subprocess.STDOUT
        stdin = None if output is None else subprocess.DEVNULL
        _leave_to_the_ranks()
        with self._lock:
            self._child = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=output,
                stderr=stderr,
                env=_unmarked(),
                preexec_fn=_begin_launcher,
            )
            if self._lost:
                self._child.send_signal(signal.SIGHUP)
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


# -- mpirun's "ssh" ----------------------------------------------------------------------------------


def _agent(path: str, words: "list[str]") -> int:
    """`ssh [options] HOST COMMAND…`; the options are ignored. Or `hold DAEMON…`."""
    if words[:1] == ["hold"]:  # the shell may have let the signals through
        _begin_launcher()
        os.execvp(words[1], words[1:])
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-p", "-l", "-o", "-i", "-F") else words[1:]
    if len(words) < 2:
        sys.stderr.write("bareboat: the launcher asked for no command\n")
        return 255
    _leave_to_the_ranks()
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
