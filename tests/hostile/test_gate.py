"""The gate of a study listens on loopback, where every user of the machine can connect."""

import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bareboat_base.errors import RunError
from bareboat_study import gate as gates
from bareboat_study.gate import Gate


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate() as gate:
        yield gate


@pytest.fixture
def pidfd() -> Iterator[int]:
    """That of a job script that ends after 20 seconds, so that no test waits for ever."""
    ends = socket.socketpair()
    end = threading.Timer(20, ends[1].close)
    end.start()
    yield ends[0].fileno()
    end.cancel()
    for each in ends:
        each.close()


def _connect(gate: Gate, line: bytes = b"") -> socket.socket:
    host, port, _ = gate.address.rsplit(":", 2)
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(line)
    return connection


def _rank(gate: Gate, then: bytes = b"at 1\n") -> socket.socket:
    token = gate.address.rpartition(":")[2].encode()
    return _connect(gate, b"hello " + token + b" 0 1\n" + then)


@pytest.mark.parametrize(
    "line",
    [
        "hello \u00ff 0 1\n".encode(),
        b"hello \xff 0 1\n",
        b"hello \xff\xfe\x00 x y\n",
        b"\x00\n",
        b"\n\n\n",
        b"hello TOKEN x 1\n",
        b"hello TOKEN 0 x\n",
        b"hello TOKEN -1 1\n",
        b"hello TOKEN 1 1\n",
        b"hello TOKEN 0 0\n",
        b"hello TOKEN 0 " + b"9" * 190 + b"\n",
        "hello TOKEN \u0661 2\n".encode(),
        b"at 1\n",
        b"bye\n",
    ],
)
def test_no_line_of_a_stranger_ends_a_study(gate: Gate, pidfd: int, line: bytes) -> None:
    token = gate.address.rpartition(":")[2].encode()
    stranger = _connect(gate, line.replace(b"TOKEN", token))
    threading.Timer(0.1, _rank, [gate]).start()
    assert gate.wait(pidfd)
    assert (gate.world_size, gate.step) == (1, 1)
    assert stranger.recv(100) == b""


def test_more_strangers_than_open_files_end_no_study(gate: Gate, pidfd: int) -> None:
    strangers: list[socket.socket] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Half of the connections are this process's own ends.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1024), hard))
    flood = threading.Thread(target=lambda: strangers.extend(_connect(gate) for _ in range(500)))
    try:
        flood.start()
        threading.Timer(0.5, lambda: flood.join() or strangers.append(_rank(gate))).start()  # type: ignore[func-returns-value]
        assert gate.wait(pidfd)
        assert len(gate._strangers) <= gates.MOST_STRANGERS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in strangers:
            each.close()


def test_without_open_files_the_oldest_strangers_make_room(gate: Gate, pidfd: int) -> None:
    strangers = [_connect(gate) for _ in range(20)]
    rank = _rank(gate)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Ten connections can be accepted; there are twenty-one.
    free = [socket.socket() for _ in range(10)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(each.fileno() for each in free) + 1, hard))
    for each in free:
        each.close()
    try:
        assert gate.wait(pidfd)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for each in (*strangers, rank):
        each.close()


def test_strangers_do_not_delay_the_time_limit(
    gate: Gate, pidfd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "SILENCE_S", 1.0)
    stopped = threading.Event()

    def connect() -> None:
        while not stopped.wait(0.05):
            _connect(gate, b"hello x 0 1\n").close()

    thread = threading.Thread(target=connect)
    thread.start()
    began = time.monotonic()
    # Without the limit, a rank comes at last, and the wait ends.
    late = threading.Timer(8, _rank, [gate])
    late.start()
    try:
        with pytest.raises(RunError, match="no rank connected"):
            gate.wait(pidfd)
        assert time.monotonic() - began < 8
    finally:
        late.cancel()
        stopped.set()
        thread.join()


def test_the_ranks_that_keep_a_study_waiting_are_named(
    gate: Gate, pidfd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "SILENCE_S", 0.5)
    token = gate.address.rpartition(":")[2].encode()
    ranks = [_connect(gate, b"hello " + token + b" %d 4\n" % number) for number in (0, 2)]
    ranks[1].sendall(b"at 1\n")
    with pytest.raises(RunError, match="ranks 1, 3 did not connect and rank 0 sent no message"):
        gate.wait(pidfd)
    for each in ranks:
        each.close()


def test_a_silent_stranger_is_disconnected(gate: Gate, pidfd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "HELLO_S", 0.2)
    stranger = _connect(gate, b"hello ")
    threading.Timer(1.5, _rank, [gate]).start()
    assert gate.wait(pidfd)
    assert stranger.recv(100) == b""
