"""Processes of this machine, read from /proc: those of a run, descendants, memory; and killing them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bareboat_base.marks import HELPER_VARIABLE, RUN_VARIABLE

log = logging.getLogger("bareboat")
#: Time to wait after SIGKILL, which acts at once or not at all.
KILL_GRACE_S = 5.0


class Process(NamedTuple):
    parent: int
    session: int
    started: int


def live_processes() -> dict[int, Process]:
    """All live processes, from proc_pid_stat(5)."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as stream:
            words = stream.read().rpartition(b") ")[2].split()
            if words[0] not in (b"Z", b"X"):
                found[int(name)] = Process(int(words[1]), int(words[3]), int(words[19]))
    return found


def processes_of(mark: str, *, helpers: bool = False) -> Iterator[int]:
    """This user's processes with the run's mark, except this process. `helpers`: also those
    that its engine started for it."""
    wanted = {f"{RUN_VARIABLE}={mark}".encode()}
    if helpers:
        wanted.add(f"{HELPER_VARIABLE}={mark}".encode())
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{name}/environ").read_bytes()
            if int(name) != os.getpid() and not wanted.isdisjoint(environment.split(b"\0")):
                yield int(name)


def has_signal(pid: int, field: bytes, number: int) -> bool:
    """Whether the signal waits for the process, which blocks it (ShdPnd), or is handled by it (SigCgt)."""
    with contextlib.suppress(OSError):
        found = re.search(rb"(?m)^%b:\s*([0-9a-f]+)$" % field, Path(f"/proc/{pid}/status").read_bytes())
        return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)
    return False


def end_strays(mark: str) -> None:
    """Kill the remaining processes of a run whose job script is gone, and wait until they exit."""
    kill_all(lambda: list(processes_of(mark, helpers=True)))


def descendants(pid: int) -> list[int]:
    """All live descendants of a process."""
    return below(pid, live_processes())


def below(pid: int, processes: Mapping[int, Process]) -> list[int]:
    children: dict[int, list[int]] = {}
    for each, facts in processes.items():
        children.setdefault(facts.parent, []).append(each)
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found[1:]


def kill_all(left_of: Callable[[], list[int]]) -> None:
    """Kill the remaining processes of a run, and wait until they exit."""
    deadline = time.monotonic() + KILL_GRACE_S
    while left := left_of():
        for pid in left:
            log.debug("killing process %d, left over from a run", pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:  # stuck in the kernel, in a dead file system perhaps
            log.warning("processes %s of a run could not be killed", left)
            return
        time.sleep(0.01)


def rss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/statm", "rb") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def pss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
        for line in stream:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0
