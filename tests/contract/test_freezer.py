"""What stands still between the turns of a study: every process of a run, and nothing else."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bareboat_study.freezer import Freezer

RUN = "freezer-test"
MARKS = {"BAREBOAT_RUN": RUN, "PATH": "/usr/bin:/bin"}


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs that a test starts below this process; all are gone after it."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for each in found:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()


def start(
    children: list[subprocess.Popen[bytes]], *argv: str, **more: str
) -> tuple[subprocess.Popen[bytes], Freezer]:
    """A program with the run's mark that printed a line."""
    child = subprocess.Popen(argv, env=MARKS | more, stdout=subprocess.PIPE, start_new_session=True)
    children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline()
    return child, Freezer(RUN, os.getpid())


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def grows(file: Path) -> bool:
    size = file.stat().st_size
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        if file.stat().st_size > size:
            return True
        time.sleep(0.02)
    return False


#: A rank with a loader, which lost its environment, and that one's own child; each writes all the time.
TREE = """
import os, subprocess, sys, time
folder, depth = sys.argv[1], int(sys.argv[2])
if depth:
    words = [sys.executable, "-c", sys.argv[3], folder, str(depth - 1), sys.argv[3]]
    subprocess.Popen(words, env={}, stdout=subprocess.DEVNULL)  # the first one says when all have started
while depth and not os.path.exists(f"{folder}/{depth - 1}"):
    time.sleep(0.01)
file = open(f"{folder}/{depth}", "wb", 0)
print("started", flush=True)
while True:
    file.write(b"x")
    time.sleep(0.005)
"""


def test_loaders_and_their_children_stand_still_and_go_on(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    _, freezer = start(children, sys.executable, "-c", TREE, str(tmp_path), "2", TREE)
    for _ in range(3):
        assert freezer.freeze() == ""
        assert [grows(tmp_path / str(depth)) for depth in (0, 1, 2)] == [False] * 3
        freezer.thaw()
        assert [grows(tmp_path / str(depth)) for depth in (0, 1, 2)] == [True] * 3


def test_a_tree_that_changes_meanwhile_stands_still(children: list[subprocess.Popen[bytes]]) -> None:
    child, freezer = start(children, "sh", "-c", "echo started; while :; do sleep 0.01 & wait; done")
    for _ in range(20):
        assert freezer.freeze() == ""
        before = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
        time.sleep(0.03)
        assert Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text() == before
        freezer.thaw()
        time.sleep(0.02)


#: Handles SIGCONT; its parent waits for stops as a shell does, and would report one.
HANDLING = """
import os, signal, sys, time
child = os.fork()
if child:
    print("started", flush=True)
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            open(sys.argv[1] + "/stopped", "w").close()
        else:
            sys.exit(os.waitstatus_to_exitcode(status))
seen = []
signal.signal(signal.SIGCONT, lambda *_: seen.append(1))
deadline = time.monotonic() + 1.0
while time.monotonic() < deadline:
    time.sleep(0.01)
sys.exit(7 if len(seen) >= 3 else 8)
"""


def test_a_parent_that_waits_for_stops_sees_none(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    child, freezer = start(children, sys.executable, "-c", HANDLING, str(tmp_path))
    time.sleep(0.2)
    for _ in range(5):
        assert freezer.freeze() == ""
        freezer.thaw()
        time.sleep(0.02)
    assert child.wait(timeout=20) == 7
    assert not (tmp_path / "stopped").exists()


def test_torchrun_s_agent_and_an_engine_s_helpers_go_on(children: list[subprocess.Popen[bytes]]) -> None:
    shown = ("sh", "-c", "echo started; sleep 60")
    agent, _ = start(children, *shown)
    rank, freezer = start(children, *shown, TORCHELASTIC_RUN_ID="x")
    helper, _ = start(children, *shown, BAREBOAT_HELPER_OF=RUN, TORCHELASTIC_RUN_ID="x")
    assert freezer.freeze() == ""
    assert [state(each.pid) == "T" for each in (agent, rank, helper)] == [False, True, False]
    freezer.thaw()
    assert state(rank.pid) != "T"


def test_a_process_that_a_tracer_owns_is_a_reason_and_goes_on(
    children: list[subprocess.Popen[bytes]],
) -> None:
    child, freezer = start(children, "sh", "-c", "echo started; sleep 60")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0x4206, child.pid, 0, 0):  # PTRACE_SEIZE
        pytest.skip(f"processes may not be traced: {os.strerror(ctypes.get_errno())}")
    try:
        assert f"process {child.pid} has a tracer" in freezer.freeze()
        freezer.thaw()
        assert state(child.pid) != "T"
    finally:
        libc.ptrace(17, child.pid, 0, 0)  # PTRACE_DETACH


def test_what_processes_used_is_counted_while_they_stand_still(
    children: list[subprocess.Popen[bytes]],
) -> None:
    busy = "import threading\nprint('started', flush=True)\nwhile True: sum(range(10**5))"
    _, freezer = start(children, sys.executable, "-c", busy)
    assert freezer.freeze() == ""
    first = freezer.used()
    time.sleep(0.1)
    assert freezer.used() == first
    freezer.thaw()
    time.sleep(0.3)
    assert freezer.freeze() == ""
    second = freezer.used()
    assert first is not None
    assert second is not None
    cpu_ns, wait_ns, threads = second.since(first)
    assert cpu_ns + wait_ns > 0
    assert cpu_ns < 0.5e9
    assert threads == 1
