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


def processes_of(run_id: str, *, helpers: bool = False) -> Iterator[int]:
    """This user's processes with the run's mark, except this process. `helpers`: also those
    that its engine started for it."""
    marks = {f"{RUN_VARIABLE}={run_id}".encode()}
    if helpers:
        marks.add(f"{HELPER_VARIABLE}={run_id}".encode())
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                environment = stream.read()
        except OSError:
            continue
        if not marks.isdisjoint(environment.split(b"\0")):
            yield int(name)


def ranks_of(run_id: str) -> list[int]:
    """The processes of a run that may be stopped for a while: all but torchrun's agent, whose rendezvous
    expires after 15 seconds without its heartbeat, and which sleeps while its ranks do."""
    found = list(processes_of(run_id))
    started = [pid for pid in found if _has_variable(pid, b"TORCHELASTIC_RUN_ID=")]
    return started or found


def _has_variable(pid: int, name: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return any(each.startswith(name) for each in stream.read().split(b"\0"))
    except OSError:
        return False


def end_strays(run_id: str) -> None:
    """Kill the remaining processes of a run whose job script is gone, and wait until they exit."""
    kill_all(lambda: list(processes_of(run_id, helpers=True)))


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


def handles_interrupt(pid: int) -> bool:
    """Whether the process has a handler for SIGINT; False when it ended."""
    try:
        found = re.search(rb"(?m)^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_bytes())
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> (signal.SIGINT - 1) & 1)


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
    try:
        with open(f"/proc/{pid}/statm", "rb") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def scheduling(pid: int) -> str:
    """A process's cgroup, scheduling policy, nice value and cores; whether it is traced, as by PRoot, or is a
    FUSE file system. One line; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as stream:
            groups = sorted(line.strip().partition(":")[2] for line in stream)
        with open(f"/proc/{pid}/stat", "rb") as stream:
            name, _, rest = stream.read().partition(b"(")[2].rpartition(b") ")
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as stream:
            tracer = next(line.split()[1] for line in stream if line.startswith("TracerPid:"))
        cores = ",".join(map(str, sorted(os.sched_getaffinity(pid))))
        words = rest.split()
        # proc_pid_stat(5): fields 41 and 19; the third is the first here.
        found = f"cgroup {' '.join(groups)}; policy {int(words[38])}; nice {int(words[16])}; cores {cores}"
    except (OSError, IndexError, StopIteration):
        return ""
    return found + "; traced" * (tracer != "0") + "; FUSE" * (b"fuse" in name)


def pss_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
            for line in stream:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0
