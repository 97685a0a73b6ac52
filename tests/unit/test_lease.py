"""Leases between real processes: one at a time, whoever is killed, stopped, slow or on another machine."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import ordinary, output

from bareboat_images import lease
from bareboat_images.store import owner

#: A holder that nothing is known about: of another machine.
ELSEWHERE = "elsewhere-4026531836-123-456"
_HEAD = """
import os, pathlib, sys, time
from bareboat_images import lease
lease._PATIENCE_S, lease._BEAT_S = float(sys.argv[2]), float(sys.argv[3])
path = pathlib.Path(sys.argv[1])
folder = path.parent.parent
def never(): return False
def say(text): print(text, flush=True)
"""


class Python(subprocess.Popen[str]):
    """A process that has the lease module, and `path`, `folder`, `never` and `say`; ended at the end."""

    def __init__(
        self,
        program: str,
        path: Path,
        *,
        patience_s: float = 60,
        prefix: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            [*prefix, sys.executable, "-c", _HEAD + program, str(path), str(patience_s), "0.05"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self, line: str) -> None:
        assert self.stdout is not None
        found = self.stdout.readline().strip()
        assert found == line, self.communicate()[1] if self.poll() is not None else found

    def end(self) -> None:
        """It ended well by itself."""
        _, stderr = self.communicate(timeout=60)
        assert self.returncode == 0, stderr

    def die(self) -> None:
        self.kill()
        self.wait()


_HOLD = """
with lease.hold(path, until=never) as mine:
    say(f"held {mine}")
    time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases" / "sha256-abc"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_BEAT_S", 0.05)


@contextlib.contextmanager
def holder(path: Path) -> Iterator[Python]:
    process = Python(_HOLD, path)
    try:
        process.says("held True")
        yield process
    finally:
        process.kill()
        process.communicate()


def never() -> bool:
    return False


def leave(path: Path, text: str) -> None:
    """A lease as another process left it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def took_s(path: Path) -> float:
    began = time.monotonic()
    with lease.hold(path, until=never) as mine:
        assert mine
        return time.monotonic() - began


def files(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


# -- one process ---------------------------------------------------------------------------------------


def test_a_lease_is_there_while_it_is_held_and_gone_afterwards(path: Path) -> None:
    with lease.hold(path, until=never) as mine:
        assert mine
        assert files(path) == [path.name]
        assert path.read_text().splitlines()[0] == owner()
    assert files(path) == []


def test_work_that_is_done_needs_no_lease(path: Path) -> None:
    with lease.hold(path, until=lambda: True) as mine:
        assert not mine
    assert files(path) == []


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), SystemExit()], ids=repr)
def test_a_lease_goes_with_every_exception(path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), lease.hold(path, until=never):
        raise error
    assert files(path) == []


@pytest.mark.parametrize("calls", [1, 2])
def test_an_exception_of_until_leaves_no_lease(path: Path, calls: int) -> None:
    left = calls

    def until() -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            raise ValueError("stopped")
        return False

    with pytest.raises(ValueError, match="stopped"), lease.hold(path, until=until):
        pytest.fail("the lease was taken")
    assert files(path) == []


def test_a_disk_that_is_full_leaves_no_candidate(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()

    def full(candidate: Path, _mine: str) -> None:
        candidate.touch()
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(lease, "_write", full)
    with pytest.raises(OSError, match="no space"), lease.hold(path, until=never):
        pytest.fail("the lease was taken")
    assert files(path) == []


def test_threads_of_one_process_take_turns(path: Path) -> None:
    inside: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        for _ in range(5):
            with lease.hold(path, until=never) as mine:
                assert mine
                inside.append(1)
                most = max(most, len(inside))
                time.sleep(0.002)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 1
    assert files(path) == []


def test_the_holder_is_named_once_to_who_waits(path: Path) -> None:
    told: list[str] = []
    with holder(path) as process:
        threading.Timer(0.5, process.die).start()
        with lease.hold(path, until=never, waiting=told.append) as mine:
            assert mine
    assert len(told) == 1
    assert str(process.pid) in told[0]
    assert "\n" not in told[0]


# -- file systems ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    def link(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.3)
    with lease.hold(path, until=never) as mine:
        assert mine
        asked = iter((False, False, True))
        with lease.hold(path, until=lambda: next(asked)) as second:
            assert not second
        assert files(path) == [path.name]
    assert files(path) == []
    leave(path, ELSEWHERE)
    assert took_s(path) >= 0.3


def test_an_answer_that_nfs_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link was made, its answer lost, the repeated request answered with EEXIST."""
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert took_s(path) < 5
    assert files(path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError), lease.hold(tmp_path / "file" / "x", until=never):  # noqa: PT011
        pytest.fail("the lease was taken")


# -- holders that die, stop or live elsewhere ----------------------------------------------------------


def test_a_killed_holder_is_followed_at_once(path: Path) -> None:
    with holder(path) as process:
        process.die()
        assert path.exists()
        assert took_s(path) < 2
    assert files(path) == []


@pytest.mark.parametrize(
    "text",
    [ELSEWHERE, ELSEWHERE + "\nabc\n", "", "garbage", "\n\n\n", "x" * 10_000, "\0"],
    ids=lambda t: t[:9],
)
def test_a_lease_that_nobody_keeps_up_is_broken_after_the_patience(
    path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    leave(path, text)
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.5)
    assert 0.5 <= took_s(path) < 3
    assert files(path) == []


def test_a_lease_that_cannot_be_read_is_waited_for_and_broken(path: Path) -> None:
    leave(path, ELSEWHERE)
    path.chmod(0)
    program = """
began = time.monotonic()
with lease.hold(path, until=never) as mine:
    assert mine
    assert 0.5 <= time.monotonic() - began < 5
"""
    Python(program, path, patience_s=0.5, prefix=ordinary()).end()
    assert files(path) == []


def test_old_and_future_time_stamps_mean_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps: only whether the stamp changes counts, by the waiter's monotonic clock."""
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.5)
    for stamp in (0, 4 * 10**9):
        leave(path, ELSEWHERE)
        os.utime(path, (stamp, stamp))
        assert 0.5 <= took_s(path) < 3


def test_a_live_holder_elsewhere_is_not_broken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It touches its lease, at times that are all over the place; we wait for many times the patience."""
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.5)
    leave(path, ELSEWHERE)
    stop_at = time.monotonic() + 2.5
    stamps = iter(range(10**9, 2 * 10**9, 7919))

    def until() -> bool:
        if time.monotonic() > stop_at:
            return True
        stamp = next(stamps) * (-1) ** (next(stamps) % 2) % 10**9
        os.utime(path, (stamp, stamp))
        return False

    with lease.hold(path, until=until) as mine:
        assert not mine
    assert path.read_text() == ELSEWHERE
    assert files(path) == [path.name]


def test_a_stopped_holder_is_broken_and_takes_nothing_away_when_it_wakes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.5)
    program = """
with lease.hold(path, until=never) as mine:
    say(f"held {mine}")
    sys.stdin.readline()
"""
    process = Python(program, path)
    try:
        process.says("held True")
        process.send_signal(signal.SIGSTOP)
        with lease.hold(path, until=never) as mine:
            assert mine
            process.send_signal(signal.SIGCONT)
            time.sleep(0.2)  # it beats
            process.end()  # its standard input is at its end: it leaves
            assert path.read_text().startswith(owner() + "\n")
            assert files(path) == [path.name]
    finally:
        process.kill()
        process.communicate()
    assert files(path) == []


def test_a_broken_lease_is_not_taken_for_its_successor(path: Path) -> None:
    """File systems give a new file the number of one that was just removed."""
    with lease.hold(path, until=never) as mine:
        assert mine
        number = path.stat().st_ino
        for _ in range(100):
            path.unlink()
            leave(path, ELSEWHERE)
            if path.stat().st_ino == number:
                break
        stamp = path.stat().st_mtime_ns
        time.sleep(0.2)
        assert path.stat().st_mtime_ns == stamp  # not touched, and below, not removed
    assert path.read_text() == ELSEWHERE


def test_a_breaker_that_was_killed_stops_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holder(path) as process:
        dead = path.read_text()
        process.die()
    breaking = path.with_name(f".{path.name}.breaking")
    leave(breaking, dead)
    assert took_s(path) < 3
    assert files(path) == []
    # And of one on another machine nothing is known but that it does nothing any more.
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.5)
    leave(path, ELSEWHERE)
    leave(breaking, ELSEWHERE)
    assert 1.0 <= took_s(path) < 5
    assert files(path) == []


# -- many ----------------------------------------------------------------------------------------------

_WORK = """
start = folder / "start"
say("ready")
while not start.exists():
    time.sleep(0.001)
for turn in range(int(os.environ["TURNS"])):
    with lease.hold(path, until=never) as mine:
        assert mine
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))   # fails if somebody is inside
        time.sleep(0.001)
        os.unlink(folder / "inside")
"""


def start_together(program: str, path: Path, number: int) -> list[Python]:
    processes = [Python(program, path) for _ in range(number)]
    for process in processes:
        process.says("ready")
    (path.parent.parent / "start").touch()
    return processes


def test_many_processes_hold_it_one_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNS", "10")
    for process in start_together(_WORK, path, 8):
        process.end()
    assert files(path) == []


def test_workers_that_are_killed_one_after_the_other(path: Path) -> None:
    """Each dies in the middle of the work; the last finds the way free, and nothing is done twice at once."""
    program = """
done = folder / "done"
say("ready")
with lease.hold(path, until=done.exists) as mine:
    if mine:
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
        say("mine")
        if int((folder / "lives").read_text()) > 0:
            (folder / "lives").write_text(str(int((folder / "lives").read_text()) - 1))
            os.unlink(folder / "inside")
            os.kill(os.getpid(), 9)
        done.touch()
"""
    (path.parent.parent / "lives").write_text("5")
    processes = start_together(program, path, 8)
    deadline = time.monotonic() + 60
    left = processes
    while left and time.monotonic() < deadline:
        left = [process for process in left if process.poll() is None]  # who died is a zombie until then
        time.sleep(0.01)
    for process in processes:
        _, stderr = process.communicate(timeout=1)
        assert process.returncode in (0, -9), stderr
    assert [process.returncode for process in processes].count(-9) == 5
    assert files(path) == []


def test_only_leases_of_the_dead_are_cleared(tmp_path: Path) -> None:
    program = "from bareboat_images.store import owner; print(owner())"
    dead = output(sys.executable, "-c", program)
    for name, holder in (
        ("build-dead", dead), (".build-dead.breaking", dead), ("build-alive", f"{owner()}\n"),
        ("build-elsewhere", f"{ELSEWHERE}\n"), ("pull-dead", dead),
    ):  # fmt: skip
        (tmp_path / name).write_text(f"{holder}token\n")
    lease.clear(tmp_path, "build-")
    assert sorted(os.listdir(tmp_path)) == ["build-alive", "build-elsewhere", "pull-dead"]
    lease.clear(tmp_path / "missing", "build-")
