"""Strangers on the network of a run of image-mpirun: they call the first node, and listen in its place.

Whatever they do, the job starts in time, learns them nothing, and obeys nobody else.
"""

import contextlib
import hashlib
import hmac
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import said
from registries import free_port
from strangers import run_as_stranger
from tools import started

from bareboat.launchers import image_mpirun
from bareboat.mpi import authentication

pytestmark = pytest.mark.one_in(4)

SECRET = bytes(range(32))
#: The program as it runs in an image, with a name of its own for each node, and less patience with strangers.
NODE = """
import os, sys, tempfile
text = open({text!r}).read().partition('if __name__ ==')[0]
exec(compile(text, "relay", "exec"))
socket.gethostname = lambda: os.environ["NODE"]
_folder = lambda _: tempfile.mkdtemp()  # they have one /tmp
_PATIENCE_S = float(os.environ["PATIENCE"])
PROOF_S = float(os.environ["PROOF_S"])
sys.exit(main(sys.argv[1:]))
"""
MAGIC = b"FLR2"


class Run:
    """Two nodes of a run, as processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "relay").write_text(image_mpirun._RELAY)
        self.port = free_port()
        self.started: list[subprocess.Popen[str]] = []

    def start(self, node: int, *, patience_s: float = 30, proof_s: float = 10) -> subprocess.Popen[str]:
        process = started(
            [
                sys.executable, "-c", NODE.format(text=str(self.folder / "relay")), "--node", str(node),
                "--nodes", "2", "--ranks", "1", "--master", "127.0.0.1", "--port", str(self.port),
                "--launcher", "5", "--check", "0", "--",
                "/bin/sh", "-c", '"$1" c2 "echo daemon" && shift && "$@"', "-", "AGENT", "echo", "job",
            ],
            env={
                **os.environ, "NODE": f"c{node + 1}", "PATIENCE": str(patience_s), "PROOF_S": str(proof_s),
                "BAREBOAT_SECRET": SECRET.hex(),
            },
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def connect(self, port: int | None = None) -> socket.socket:
        deadline = time.monotonic() + 20
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port or self.port), timeout=5)
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    found = Run(tmp_path)
    yield found
    for process in found.started:
        process.kill()
        process.communicate(timeout=20)


def works(lead: subprocess.Popen[str], other: subprocess.Popen[str]) -> None:
    assert said(lead) == (0, "job\n", "")
    assert said(other) == (0, "daemon\n", "")


# -- who calls -----------------------------------------------------------------------------------------

HELLO = MAGIC + bytes(32)
#: What a stranger sends at once.
SENT = {
    "nothing": b"",
    "one byte": b"F",
    "half a hello": HELLO[:20],
    "a hello": HELLO,
    "a hello and half a proof": HELLO + bytes(16),
    "a hello and a proof of zeros": HELLO + bytes(32),
    "a hello and much more": HELLO + bytes(2**20),
    "another magic": b"FLR1" + bytes(64),
    "lists in lists": b"[" * 100_000 + b"\n",
    "objects in objects": b'{"nonce":' * 100_000 + b"\n",
    "the protocol of before": b'{"nonce": "00"}\n{"proof": "00", "host": "c2", "node": 1}\n',
    "a huge length": b"\xff\xff\xff\xff" + bytes(100),
    "a signed length": struct.pack(">i", -1) + bytes(100),
    "HTTP": b"GET / HTTP/1.1\r\nHost: c1\r\n\r\n",
    "a command": json.dumps({"start": 1, "words": ["touch", "/tmp/owned"]}).encode() + b"\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "no UTF-8": b"\xff\xfe\xfd" * 1000,
    "a megabyte of one line": b"a" * 2**20,
    "line feeds": b"\n" * 4096,
}


def call(run: Run, data: bytes) -> socket.socket:
    connection = run.connect()
    with contextlib.suppress(OSError):
        connection.sendall(data)
    return connection


@pytest.mark.parametrize("ends", ["stays", "closes", "half closes", "resets"])
@pytest.mark.parametrize("what", list(SENT))
def test_a_stranger_who_calls_holds_up_nobody(run: Run, what: str, ends: str) -> None:
    lead = run.start(0)
    began = time.monotonic()
    connections = [call(run, SENT[what]) for _ in range(3)]
    for connection in connections:
        with contextlib.suppress(OSError):
            match ends:
                case "closes":
                    connection.close()
                case "half closes":
                    connection.shutdown(socket.SHUT_WR)
                case "resets":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.close()
    works(lead, run.start(1))
    assert time.monotonic() - began < 8
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("what", ["nothing", "a hello", "half a hello"])
def test_a_flood_of_strangers_does_not_keep_the_node_out(run: Run, what: str) -> None:
    lead = run.start(0)
    over = threading.Event()
    held: list[socket.socket] = []

    def flood() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", run.port), timeout=1)
                connection.sendall(SENT[what])
                held.append(connection)
            while len(held) > 400:
                held.pop(0).close()

    run.connect().close()
    threads = [threading.Thread(target=flood) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        began = time.monotonic()
        works(lead, run.start(1))
        assert time.monotonic() - began < 20
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for connection in held:
            connection.close()


def test_a_drop_at_a_time_is_one_connection_with_one_deadline(run: Run) -> None:
    lead = run.start(0, proof_s=1)
    connection = run.connect()
    began = time.monotonic()
    with contextlib.suppress(OSError):
        for _ in range(100):
            connection.sendall(b"F")
            time.sleep(0.05)
    assert time.monotonic() - began < 3
    works(lead, run.start(1))


def test_another_user_of_the_machine_is_such_a_stranger(run: Run) -> None:
    lead = run.start(0)
    run.connect().close()
    attack = (
        "exec /usr/bin/python3 -c 'import socket, sys\n"
        "held = []\n"
        'for each in (b"[" * 100_000 + b"\\n", b"FLR2" + bytes(64), b""):\n'
        "    for _ in range(100):\n"
        '        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))\n'
        "        try: held[-1].sendall(each)\n"
        "        except OSError: pass\n"
        'print(len(held))\' "$1"'
    )
    done = run_as_stranger(attack, str(run.port))
    assert done.stdout == "300\n", done.stderr
    works(lead, run.start(1))


def test_a_lone_stranger_is_no_node(run: Run) -> None:
    lead = run.start(0, patience_s=2)
    connection = call(run, HELLO)
    code, out, err = said(lead)
    assert (code, out) == (1, "")
    assert "only 1 of 2 nodes came" in err
    connection.close()


# -- the proof, spoken by hand -------------------------------------------------------------------------


def proof(what: bytes, place: str, follower: bytes, lead: bytes, secret: bytes = SECRET) -> bytes:
    said = b"\0".join((b"relay", what, place.encode(), follower + lead))
    return hmac.new(secret, said, hashlib.sha256).digest()


class ByHand:
    """A node as the protocol's description has it, written a second time."""

    def __init__(self, run: Run) -> None:
        self.place = f"127.0.0.1:{run.port}"
        self.connection = run.connect()
        self.ours = os.urandom(32)
        self.theirs = b""

    def greet(self) -> None:
        self.connection.sendall(MAGIC + self.ours)
        answer = b""
        while len(answer) < 64:
            data = self.connection.recv(64 - len(answer))
            assert data, "the first node has hung up"
            answer += data
        self.theirs = answer[:32]
        assert answer[32:] == proof(b"lead", self.place, self.ours, self.theirs)

    def prove(self, what: bytes = b"follow") -> None:
        self.connection.sendall(proof(what, self.place, self.ours, self.theirs))

    def frame(self, message: bytes, number: int = 0, direction: bytes = b"follow") -> bytes:
        key = proof(b"key", self.place, self.ours, self.theirs)
        signature = hmac.new(key, direction + struct.pack(">Q", number) + message, hashlib.sha256).digest()
        return struct.pack(">I", len(message)) + signature + message

    def is_shut_out(self) -> bool:
        self.connection.settimeout(15)
        try:
            return self.connection.recv(1) == b""
        except ConnectionError:
            return True


GREETING = json.dumps({"node": 1, "host": "c2"}).encode()


def test_who_knows_the_secret_is_let_in_by_the_described_protocol(run: Run) -> None:
    lead = run.start(0)
    node = ByHand(run)
    node.greet()
    node.prove()
    node.connection.sendall(node.frame(GREETING))
    (size,) = struct.unpack(">I", node.connection.recv(4, socket.MSG_WAITALL))
    assert json.loads(node.connection.recv(32 + size, socket.MSG_WAITALL)[32:]) == {"welcome": True}
    node.connection.close()  # a lost node: the launcher ends
    assert said(lead)[0] != 0


@pytest.mark.parametrize("what", [b"lead", b"key", b"follow "])
def test_a_proof_of_something_else_is_none(run: Run, what: bytes) -> None:
    lead = run.start(0)
    node = ByHand(run)
    node.greet()
    node.prove(what)
    assert node.is_shut_out()
    works(lead, run.start(1))


def test_the_first_nodes_own_proof_is_not_taken_back(run: Run) -> None:
    lead = run.start(0)
    node = ByHand(run)
    node.connection.sendall(MAGIC + node.ours)
    answer = node.connection.recv(64, socket.MSG_WAITALL)
    node.connection.sendall(answer[32:])
    assert node.is_shut_out()
    works(lead, run.start(1))


def test_a_replayed_proof_is_worth_nothing(run: Run) -> None:
    lead = run.start(0)
    heard = ByHand(run)
    heard.greet()
    recorded = (
        MAGIC + heard.ours + proof(b"follow", heard.place, heard.ours, heard.theirs) + heard.frame(GREETING)
    )
    heard.connection.close()
    replay = run.connect()
    replay.sendall(recorded)
    replay.settimeout(15)
    with contextlib.suppress(ConnectionError):
        assert replay.recv(64, socket.MSG_WAITALL)[:32] != heard.theirs
        assert replay.recv(1) == b""
    works(lead, run.start(1))


FRAMES: dict[str, Callable[[ByHand], bytes]] = {
    "another message's signature": lambda node: node.frame(GREETING)[:36] + GREETING.replace(b"c2", b"c3"),
    "the other direction": lambda node: node.frame(GREETING, direction=b"lead"),
    "another number": lambda node: node.frame(GREETING, number=1),
    "a huge length": lambda _: b"\xff\xff\xff\xff" + bytes(64),
    "lists in lists": lambda node: node.frame(b"[" * 100_000),
    "a list": lambda node: node.frame(b"[1]"),
    "nothing": lambda node: node.frame(b""),
    "no JSON": lambda node: node.frame(b"\xff\xfe"),
    "no node": lambda node: node.frame(b"{}"),
    "the first node": lambda node: node.frame(GREETING.replace(b"1", b"0")),
    "a node too many": lambda node: node.frame(GREETING.replace(b"1", b"2")),
    "a negative node": lambda node: node.frame(GREETING.replace(b"1", b"-1")),
    "half a node": lambda node: node.frame(GREETING.replace(b"1", b"0.5")),
    "a node of words": lambda node: node.frame(GREETING.replace(b"1", b'"1"')),
    "a host of numbers": lambda node: node.frame(GREETING.replace(b'"c2"', b"5")),
    "a digit too many": lambda node: node.frame(GREETING.replace(b"1", b"9" * 5000)),
}


@pytest.mark.parametrize("what", list(FRAMES))
def test_a_message_that_is_none_costs_its_connection_alone(run: Run, what: str) -> None:
    lead = run.start(0)
    node = ByHand(run)
    node.greet()
    node.prove()
    node.connection.sendall(FRAMES[what](node))
    assert node.is_shut_out()
    works(lead, run.start(1))


def test_a_connection_that_is_signed_takes_each_message_once() -> None:
    ours, theirs = socket.socketpair()
    key = bytes(32)
    sender, receiver = (
        authentication.Line(ours, key, b"a", b"b"),
        authentication.Line(theirs, key, b"b", b"a"),
    )
    sender.send(start=1)
    sent = theirs.recv(1000, socket.MSG_PEEK)
    assert receiver.receive() == {"start": 1}
    ours.sendall(sent)
    assert receiver.receive() is None


# -- who listens in the first node's place -------------------------------------------------------------

Answer = Callable[[socket.socket, bytes], None]


def _mirror(connection: socket.socket, heard: bytes) -> None:
    connection.sendall(heard[4:] + bytes(32))


def _drip(connection: socket.socket, _: bytes) -> None:
    for _each in range(64):
        connection.sendall(b"\0")
        time.sleep(0.2)


def _wait(_connection: socket.socket, _: bytes) -> None:
    time.sleep(3)


COMMAND = json.dumps({"start": 1, "words": ["touch", "OWNED"]}).encode()
ANSWERS: dict[str, Answer] = {
    "zeros": lambda connection, _: connection.sendall(bytes(64)),
    "too much": lambda connection, _: connection.sendall(bytes(2**20)),
    "what it heard": _mirror,
    "the old protocol": lambda connection, _: connection.sendall(
        b'{"nonce": "0", "proof": "0"}\n' + COMMAND + b"\n"
    ),
    "a proof by another secret": lambda connection, heard: connection.sendall(
        bytes(32) + proof(b"lead", "127.0.0.1", heard[4:], bytes(32), b"guess") + COMMAND
    ),
    "a proof by no secret": lambda connection, heard: connection.sendall(
        bytes(32) + proof(b"lead", "127.0.0.1", heard[4:], bytes(32), b"") + COMMAND
    ),
    "commands": lambda connection, _: connection.sendall(
        bytes(64) + (struct.pack(">I", len(COMMAND)) + bytes(32) + COMMAND) * 3
    ),
    "lists in lists": lambda connection, _: connection.sendall(b"[" * 100_000),
    "nothing": _wait,
    "its end": lambda connection, _: connection.close(),
    "a byte at a time": _drip,
}


class FakeFirst:
    """Who has taken the port before the first node, and writes down what is said to it."""

    def __init__(self, port: int, answer: Answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._answer = answer
        self.heard: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._meet, args=(connection,), daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        at = len(self.heard)
        self.heard.append(b"")
        with connection, contextlib.suppress(OSError):
            self.heard[at] = connection.recv(36, socket.MSG_WAITALL)
            self._answer(connection, self.heard[at])
            connection.settimeout(1)
            while data := connection.recv(65536):
                self.heard[at] += data

    def close(self) -> None:
        # close() alone would not end accept()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def check(self) -> None:
        """Each call told it a nonce, and no more; never the same."""
        assert self.heard
        whole = [heard for heard in self.heard if heard]
        assert all(len(heard) == 36 and heard.startswith(MAGIC) for heard in whole)
        assert len(set(whole)) == len(whole)
        assert not any(SECRET in heard or SECRET.hex().encode() in heard for heard in whole)


@pytest.mark.parametrize("what", list(ANSWERS))
def test_who_listens_in_the_first_nodes_place_learns_and_commands_nothing(
    run: Run, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.folder)
    fake = FakeFirst(run.port, ANSWERS[what])
    code, out, err = said(run.start(1, patience_s=1, proof_s=1))
    fake.close()
    assert (code, out) == (1, "")
    assert "is not of this run" in err
    assert "Traceback" not in err
    assert not (run.folder / "OWNED").exists()
    fake.check()


@pytest.mark.parametrize("what", list(ANSWERS))
def test_who_has_taken_the_port_does_not_stop_the_job(run: Run, what: str) -> None:
    fake = FakeFirst(run.port, ANSWERS[what])
    works(run.start(0, proof_s=1), run.start(1, proof_s=1))
    fake.close()
    fake.check()


def test_a_port_that_is_bound_and_silent_does_not_stop_the_job(run: Run) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", run.port))
        works(run.start(0), run.start(1))


def test_who_passes_the_proof_on_from_another_place_is_not_believed(run: Run) -> None:
    real = Run(run.folder)
    lead = real.start(0, patience_s=8)
    real.connect().close()

    def pass_on(connection: socket.socket, heard: bytes) -> None:
        with real.connect() as to:
            to.sendall(heard)
            connection.sendall(to.recv(64, socket.MSG_WAITALL))
            connection.settimeout(1)
            to.sendall(connection.recv(1000))

    fake = FakeFirst(run.port, pass_on)
    code, _, err = said(run.start(1, patience_s=1, proof_s=2))
    assert code == 1
    assert "is not of this run" in err
    fake.check()
    fake.close()
    lead.kill()
    said(lead)
