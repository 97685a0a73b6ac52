"""The gate: lets exactly the asked steps through, knows its own ranks, and survives bad company."""

import socket
import threading
from collections.abc import Iterator

import pytest

from bareboat_base.errors import RunError
from bareboat_study.gate import Gate


class Rank:
    """A rank as the meter would be, driven by the test."""

    def __init__(self, gate: Gate, number: int, world_size: int, token: str | None = None) -> None:
        host, port, secret = gate.address.rsplit(":", 2)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.say(f"hello {token or secret} {number} {world_size}")

    def say(self, line: str) -> None:
        self.socket.sendall(line.encode() + b"\n")

    def hear(self) -> str:
        return self.socket.recv(100).decode()


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate() as gate:
        yield gate


class Script:
    """A stand-in for the job script: like a pidfd, its descriptor becomes readable when it ends."""

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        self.pidfd = self._ends[0].fileno()

    def end(self) -> None:
        self._ends[1].close()

    def close(self) -> None:
        self.end()
        self._ends[0].close()


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    yield script
    script.close()


def later(*actions: object) -> threading.Thread:
    thread = threading.Thread(target=lambda: [action() for action in actions])  # type: ignore[operator]
    thread.start()
    return thread


def test_ranks_do_their_first_step_at_once_and_then_wait_for_each_other(gate: Gate, script: Script) -> None:
    first, second = Rank(gate, 0, 2), Rank(gate, 1, 2)
    thread = later(
        lambda: first.hear() == "go 1\n" and first.say("at 1"),
        lambda: second.hear() == "go 1\n" and second.say("at 1"),
    )
    assert gate.wait(script.pidfd)
    thread.join()
    assert (gate.step, gate.world_size, gate.metered, gate.finished) == (1, 2, True, False)
    gate.open_until(11)
    assert (first.hear(), second.hear()) == ("go 11\n", "go 11\n")
    first.say("at 11")
    second.say("at 11")
    assert gate.wait(script.pidfd)


def test_it_does_not_settle_while_one_rank_still_works(gate: Gate, script: Script) -> None:
    first, second = Rank(gate, 0, 2), Rank(gate, 1, 2)
    first.say("at 1")
    waiting = threading.Thread(target=gate.wait, args=(script.pidfd,))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    second.say("at 1")
    waiting.join(10)
    assert not waiting.is_alive()


def test_it_settles_when_every_rank_waits_or_has_finished(gate: Gate, script: Script) -> None:
    first, second = Rank(gate, 0, 2), Rank(gate, 1, 2)
    first.say("bye")
    second.say("at 7")
    assert gate.wait(script.pidfd)
    assert not gate.finished
    assert gate.step == 7
    second.say("bye")
    gate.open_until(8)
    assert gate.wait(script.pidfd)
    assert gate.finished


def test_the_end_of_the_job_script_ends_the_wait(gate: Gate, script: Script) -> None:
    Rank(gate, 0, 2)
    later(script.end)
    assert not gate.wait(script.pidfd)


def test_a_rank_that_dies_is_not_taken_for_one_that_waits(gate: Gate, script: Script) -> None:
    first, second = Rank(gate, 0, 2), Rank(gate, 1, 2)
    first.say("at 1")
    first.socket.close()
    second.say("at 1")
    later(script.end)
    assert not gate.wait(script.pidfd)


def _all(stranger: socket.socket) -> bytes:
    stranger.settimeout(0.2)
    try:
        return stranger.recv(100)
    except (TimeoutError, ConnectionError):
        return b""


@pytest.mark.parametrize(
    "line", ["at x", "at -1", "at \xb2", "at 1_0", "at", "at 1 2", "x" * 5000, "at " + "9" * 99]
)
def test_a_rank_that_sends_anything_else_is_disconnected(gate: Gate, script: Script, line: str) -> None:
    rank = Rank(gate, 0, 1)
    rank.say(line)
    later(lambda: _all(rank.socket), script.end)
    assert not gate.wait(script.pidfd)
    assert gate.step == 0


def test_a_rank_connects_again_after_it_disconnected(gate: Gate, script: Script) -> None:
    Rank(gate, 0, 1).socket.close()
    again = Rank(gate, 0, 1)
    again.say("at 3")
    assert gate.wait(script.pidfd)
    assert gate.step == 3


def test_two_processes_of_one_rank_are_an_error(gate: Gate, script: Script) -> None:
    first, second = Rank(gate, 0, 1), Rank(gate, 0, 1)
    with pytest.raises(RunError, match="two processes of the job connected as rank 0"):
        gate.wait(script.pidfd)
    first.socket.close()
    second.socket.close()


def test_lines_that_arrive_in_pieces_are_put_together(gate: Gate, script: Script) -> None:
    rank = Rank(gate, 0, 1)
    for piece in (b"a", b"t 1", b"2\n"):
        rank.socket.sendall(piece)
    assert gate.wait(script.pidfd)
    assert gate.step == 12


def test_leaving_the_gate_closes_every_connection(script: Script) -> None:
    with Gate() as gate:
        rank = Rank(gate, 0, 1)
        rank.say("at 1")
        gate.wait(script.pidfd)
        assert rank.hear() == "go 1\n"
    assert rank.hear() == ""
