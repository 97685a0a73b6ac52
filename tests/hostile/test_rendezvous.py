"""Strangers at the store where Horovod's ranks meet: they call it, and listen in its place."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from strangers import run_as_stranger

from bareboat.launchers import horovod
from bareboat.mpi import rendezvous

pytestmark = pytest.mark.one_in(4)

SECRET = bytes(range(32))
TOKEN = rendezvous._token(SECRET).encode()
#: Does what Horovod's ranks do at their start, by URLs made as in its http_store.h.
RANK = """
import os, socket, sys, time, urllib.error, urllib.request
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
store = "http://{}:{}/global_/".format(
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
def ask(method, key, data=None):
    for _ in range(3):  # as Horovod does
        try:
            request = urllib.request.Request(store + key, data=data, method=method)
            return urllib.request.urlopen(request).read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit("HTTP request failed")
assert "BAREBOAT_SECRET" not in os.environ
ask("PUT", str(rank), b"\\0here %d" % rank)
for other in range(size):
    while (value := ask("GET", str(other))) is None:
        time.sleep(0.01)
    print(value)
ask("DELETE", str(rank))
if len(sys.argv) > 1:
    print("up", flush=True)
    time.sleep(float(sys.argv[1]))
"""


class Run:
    def __init__(self, folder: Path) -> None:
        (folder / "rendezvous").write_text(horovod._RENDEZVOUS)
        (folder / "rank").write_text(RANK)
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, rank: int, *more: str, patience_s: float = 30, secret: str = SECRET.hex()
    ) -> subprocess.Popen[str]:
        text = (
            (self.folder / "rendezvous")
            .read_text()
            .replace("_PATIENCE_S = 300.0", f"_PATIENCE_S = {patience_s}")
        )
        process = subprocess.Popen(
            [
                sys.executable, "-c", text.replace("PROOF_S = 10.0", "PROOF_S = 1.0"),
                sys.executable, str(self.folder / "rank"), *more,
            ],
            env={
                **os.environ, "HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2", "BAREBOAT_SECRET": secret,
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
                "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port),
            },
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def connect(self) -> socket.socket:
        deadline = time.monotonic() + 20
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=5)
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def ask(self, sent: bytes) -> bytes:
        """All that comes back."""
        with self.connect() as connection:
            connection.settimeout(20)
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while data := connection.recv(65536):
                    answer += data
            return answer

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def is_over(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while self.listens() and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.listens()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    found = Run(tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


def meet(*ranks: subprocess.Popen[str]) -> None:
    for process in ranks:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert out.replace("up\n", "") == "b'\\x00here 0'\nb'\\x00here 1'\n"


SENT = {
    "nothing": b"",
    "half a line": b"GET /" + TOKEN[:10],
    "the store's own path of before": b"PUT /global_/1 HTTP/1.1\r\nContent-Length: 4\r\n\r\nevil",
    "another token": b"PUT /" + b"0" * 32 + b"/x HTTP/1.1\r\nContent-Length: 4\r\n\r\nevil",
    "the beginning of a token": b"GET /" + TOKEN[:31] + b"/x HTTP/1.1\r\n\r\n",
    "an empty token": b"GET //x HTTP/1.1\r\n\r\n",
    "a path out of the token": b"GET /../" + TOKEN + b"/x HTTP/1.1\r\n\r\n",
    "a huge length": b"PUT /global_/1 HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "a line without end": b"GET /" + b"a" * 2**20,
    "line feeds": b"\n" * 2**16,
    "no HTTP": bytes(range(256)) * 64,
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an absolute URL": b"GET http://127.0.0.1/" + b"0" * 32 + b"/x HTTP/1.1\r\n\r\n",
    "a question without a nonce": b"GET /bareboat/ HTTP/1.1\r\n\r\n",
    "a question with a short nonce": b"GET /bareboat/00 HTTP/1.1\r\n\r\n",
    "a question with a long nonce": b"GET /bareboat/" + b"0" * 65 + b" HTTP/1.1\r\n\r\n",
    "a value for the question": b"PUT /bareboat/" + b"0" * 64 + b" HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
    "another method": b"POST /" + b"0" * 32 + b"/x HTTP/1.1\r\n\r\n",
    "lists in lists": b"[" * 100_000,
}


@pytest.mark.parametrize("ends", ["stays", "closes", "resets"])
@pytest.mark.parametrize("what", list(SENT))
def test_a_stranger_who_calls_holds_up_nobody(run: Run, what: str, ends: str) -> None:
    first = run.start(0)
    connections = []
    for _ in range(3):
        connections.append(run.connect())
        with contextlib.suppress(OSError):
            connections[-1].sendall(SENT[what])
            if ends == "resets":
                connections[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if ends != "stays":
                connections[-1].close()
    began = time.monotonic()
    meet(first, run.start(1))
    assert time.monotonic() - began < 8
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("what", [each for each in SENT if each not in ("nothing", "half a line")])
def test_a_stranger_gets_no_answer_and_leaves_no_value(run: Run, what: str) -> None:
    first = run.start(0)
    assert run.ask(SENT[what]) == b""
    meet(first, run.start(1))


def test_the_answer_to_a_question_tells_neither_secret_nor_token(run: Run) -> None:
    first = run.start(0)
    answers = {run.ask(b"GET /bareboat/" + b"%064x" % number + b" HTTP/1.0\r\n\r\n") for number in range(20)}
    assert len(answers) == 20
    for answer in answers:
        assert answer.startswith(b"HTTP/1.0 200 OK\r\nContent-Length: 64\r\n")
        assert TOKEN not in answer
        assert SECRET.hex().encode() not in answer
    meet(first, run.start(1))


@pytest.mark.parametrize("what", ["nothing", "half a line", "another token"])
def test_a_flood_of_strangers_does_not_keep_the_ranks_out(run: Run, what: str) -> None:
    first = run.start(0)
    run.connect().close()
    over = threading.Event()
    held: list[socket.socket] = []

    def flood() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", run.port), timeout=1))
                held[-1].sendall(SENT[what])
            while len(held) > 400:
                held.pop(0).close()

    threads = [threading.Thread(target=flood) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        meet(first, run.start(1))
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for connection in held:
            connection.close()


def test_another_user_of_the_machine_is_such_a_stranger(run: Run) -> None:
    first = run.start(0)
    run.connect().close()
    attack = (
        "exec /usr/bin/python3 -c 'import socket, sys\n"
        "held = []\n"
        'for each in (b"PUT /global_/1 HTTP/1.1\\r\\nContent-Length: 4\\r\\n\\r\\nevil", b"GET /", b""):\n'
        "    for _ in range(100):\n"
        '        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))\n'
        "        try: held[-1].sendall(each)\n"
        "        except OSError: pass\n"
        'print(len(held))\' "$1"'
    )
    done = run_as_stranger(attack, str(run.port))
    assert done.stdout == "300\n", done.stderr
    meet(first, run.start(1))


def test_a_drop_at_a_time_is_one_connection_with_one_deadline(run: Run) -> None:
    first = run.start(0)
    connection = run.connect()
    began = time.monotonic()
    with contextlib.suppress(OSError):
        for _ in range(100):
            connection.sendall(b"G")
            time.sleep(0.05)
    assert time.monotonic() - began < 4
    meet(first, run.start(1))


# -- with the token, a run that errs -------------------------------------------------------------------


def put(key: bytes, head: bytes, value: bytes = b"") -> bytes:
    return b"PUT /" + TOKEN + b"/" + key + b" HTTP/1.1\r\n" + head + b"\r\n\r\n" + value


@pytest.mark.parametrize(
    "sent",
    [
        put(b"a", b"Content-Length: 16777217"),
        put(b"a", b"Content-Length: 999999999"),
        put(b"a", b"X: " + b"y" * 20_000),
        put(b"a" * 2001, b"Content-Length: 0"),
        put(b"a", b"\r\n".join(b"X%d: y" % number for number in range(2000))),
    ],
    ids=["a large value", "a huge value", "a long head", "a long key", "many headers"],
)
def test_what_is_too_large_is_refused(run: Run, sent: bytes) -> None:
    first = run.start(0)
    assert run.ask(sent) == b""
    meet(first, run.start(1))


NO_LENGTHS = (
    "Content-Length: -1",
    "Content-Length: 1e3",
    "Content-Length: 4_4",
    "X: y",
    "Transfer-Encoding: chunked",
)


@pytest.mark.parametrize("head", NO_LENGTHS)
def test_a_length_that_is_none_is_no_value(run: Run, head: str) -> None:
    first = run.start(0)
    assert run.ask(put(b"x", head.encode())).startswith(b"HTTP/1.0 200 ")
    assert run.ask(b"GET /" + TOKEN + b"/x HTTP/1.1\r\n\r\n").endswith(b"Content-Length: 0\r\n\r\n")
    meet(first, run.start(1))


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_a_value_comes_back_as_it_was_however_it_came(run: Run, pieces: int) -> None:
    first = run.start(0)
    value = bytes(range(256)) * 40
    sent = put(b"x", b"Content-Length: %d" % len(value), value)
    step = len(sent) // pieces + 1
    with run.connect() as connection:
        for at in range(0, len(sent), step):
            connection.sendall(sent[at : at + step])
            time.sleep(0.002)
        assert connection.recv(1000).startswith(b"HTTP/1.0 200 OK\r\n")
    assert run.ask(b"GET /" + TOKEN + b"/x HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n" + value)
    meet(first, run.start(1))


# -- its end -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asks", [b"GET /x HTTP/1.1\r\n\r\n", b"GET /bareboat/" + b"0" * 64 + b" HTTP/1.0\r\n\r\n"]
)
def test_a_stranger_does_not_keep_the_store_alive(run: Run, asks: bytes) -> None:
    meet(run.start(0), run.start(1))
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", run.port), timeout=5) as connection:
                connection.sendall(asks)
        except OSError:
            break
        time.sleep(0.1)
    assert not run.listens()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_store_ends_with_a_rank_that_is_killed(run: Run, how: signal.Signals) -> None:
    first = run.start(0, "300")
    second = run.start(1)
    assert first.stdout is not None
    while first.stdout.readline() != "up\n":
        pass
    meet(second)
    assert run.listens()
    first.send_signal(how)
    first.wait()
    assert run.is_over(within_s=8)


# -- who listens in the store's place ------------------------------------------------------------------

FAKES: dict[str, Callable[[socket.socket], object]] = {
    "values": lambda each: each.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    "zeros": lambda each: each.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 64\r\n\r\n" + b"0" * 64),
    "too much": lambda each: each.sendall(bytes(2**20)),
    "a redirect": lambda each: each.sendall(b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
    "its end": lambda each: each.close(),
    "nothing": lambda _: time.sleep(3),
}


@pytest.mark.parametrize("what", list(FAKES))
@pytest.mark.parametrize("with_store", [True, False])
def test_who_listens_in_the_stores_place_learns_nothing_and_stops_nothing(
    run: Run, what: str, with_store: bool
) -> None:
    heard: list[bytes] = []
    secret = os.urandom(32)  # or another test's store would be found, which may still be there
    listener = socket.create_server(("127.0.0.1", run.port))

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            heard.append(connection.recv(65536))
            FAKES[what](connection)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        if with_store:
            meet(run.start(0, secret=secret.hex()), run.start(1, secret=secret.hex()))
        else:
            rank = run.start(1, patience_s=1, secret=secret.hex())
            out, err = rank.communicate(timeout=60)
            assert (rank.returncode, out) == (3, "")
            assert "is not of this run" in err
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    assert heard
    assert all(each.startswith(b"GET /bareboat/") and len(each) < 120 for each in heard)
    assert len(set(heard)) == len(heard)
    told = (rendezvous._token(secret).encode(), secret.hex().encode())
    assert not any(word in each for each in heard for word in told)


@pytest.mark.parametrize("secret", ["", "zz" * 32, "ab"])
@pytest.mark.parametrize("rank", [0, 1])
def test_without_a_secret_nothing_starts(run: Run, rank: int, secret: str) -> None:
    process = run.start(rank, secret=secret)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err == "bareboat: the run's secret is missing: BAREBOAT_SECRET\n"
