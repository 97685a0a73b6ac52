"""A computation in the background: its result, and what becomes of it in the end."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bareboat_base import execute
from bareboat_base.execute import background


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without the threads of pytest and of libraries."""
    monkeypatch.setattr(background, "_has_threads", lambda: False)


@pytest.fixture
def many_bytes() -> bytes:
    """More than a pipe holds."""
    return b"a" * (1 << 20)


@pytest.fixture
def children() -> Callable[[], set[int]]:
    """The processes that this one started in the test."""
    others = set(execute.descendants(os.getpid()))
    return lambda: set(execute.descendants(os.getpid())) - others


def _here(pid: int) -> bytes:
    return b"here" if os.getpid() == pid else b"there"


@pytest.mark.usefixtures("alone")
def test_another_process_computes_once(many_bytes: bytes, children: Callable[[], set[int]]) -> None:
    pid = os.getpid()
    with execute.in_background(lambda: _here(pid) + many_bytes) as result:
        assert result() == result() == b"there" + many_bytes
    assert not children()


@pytest.mark.usefixtures("alone")
def test_what_is_not_asked_for_is_ended(tmp_path: Path, children: Callable[[], set[int]]) -> None:
    def compute() -> bytes:
        time.sleep(2)
        (tmp_path / "ended").touch()
        return b""

    with execute.in_background(compute):
        assert children()
    assert not children()
    assert not (tmp_path / "ended").exists()


@pytest.mark.usefixtures("alone")
def test_an_error_is_raised_here() -> None:
    def fail() -> bytes:
        raise KeyError(os.getpid())

    with execute.in_background(fail) as result, pytest.raises(KeyError, match=str(os.getpid())):
        result()


@pytest.mark.usefixtures("alone")
def test_a_copy_that_is_killed_is_not_missed() -> None:
    pid = os.getpid()

    def compute() -> bytes:
        if os.getpid() != pid:
            os.kill(os.getpid(), signal.SIGKILL)
        return b"found"

    with execute.in_background(compute) as result:
        assert result() == b"found"


def test_a_process_with_threads_computes_itself() -> None:
    pid, ended = os.getpid(), threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        with execute.in_background(lambda: _here(pid)) as result:
            assert result() == b"here"
    finally:
        ended.set()
        thread.join()


@pytest.mark.usefixtures("alone")
def test_where_no_process_can_be_started_this_one_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError

    pid = os.getpid()
    monkeypatch.setattr(os, "fork", fork)
    with execute.in_background(lambda: _here(pid)) as result:
        assert result() == b"here"


@pytest.fixture
def ignored_children() -> Iterator[None]:
    """As a process inherits it from some daemons."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("alone", "ignored_children")
def test_it_needs_no_exit_status(children: Callable[[], set[int]]) -> None:
    pid = os.getpid()
    with execute.in_background(lambda: _here(pid)) as result:
        assert result() == b"there"
    with execute.in_background(lambda: b""):
        pass
    assert not children()


def test_the_descriptors_are_closed() -> None:
    before = os.listdir("/proc/self/fd")
    with execute.in_background(lambda: b"") as result:
        result()
    assert os.listdir("/proc/self/fd") == before
