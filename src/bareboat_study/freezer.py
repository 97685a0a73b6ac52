"""Stops the processes of a run while another one is measured, and counts what they used meanwhile.

A process that is stopped (SIGSTOP) uses no processor, fills no buffer and answers nobody. Timers, packets and
reads that the kernel has begun go on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bareboat_base.execute.processes import below, live_processes
from bareboat_base.marks import HELPER_VARIABLE, RUN_VARIABLE

#: Of torchrun's ranks. Its agent has a rendezvous that expires after 15 seconds without a heartbeat; it
#: sleeps while the ranks do.
_RANK_OF_TORCHRUN = b"TORCHELASTIC_RUN_ID="
#: A process that starts others while it is stopped is found by another search; one that is in a system call
#: stops at its end.
_MOST_SEARCHES = 100
_MOST_STOP_S = 10.0
_PAUSE_S = 0.0005
_MOST_PARENT_S = 0.01

#: Process ID and start time: another process with this ID is another one.
_Identity = tuple[int, int]


#: Programs of engines that serve file systems; the kernel keeps 15 characters of a name.
_FILE_SYSTEMS = (b"squashfuse", b"squashfuse_ll", b"fuse-overlayfs", b"fuse2fs", b"fusermount3")


class Used(NamedTuple):
    """What processes have used until now: process -> nanoseconds on a processor, and thread -> nanoseconds in
    which it was ready to run and waited for one."""

    cpu_ns: Mapping[_Identity, int]
    wait_ns: Mapping[int, int]

    def since(self, earlier: Used) -> tuple[int, int, int]:
        """Nanoseconds on processors and of waits since then, and the number of threads now."""
        cpu_ns = sum(now - earlier.cpu_ns.get(which, 0) for which, now in self.cpu_ns.items())
        wait_ns = sum(now - earlier.wait_ns.get(thread, 0) for thread, now in self.wait_ns.items())
        return cpu_ns, wait_ns, len(self.wait_ns)


class _Facts(NamedTuple):
    """Of a process: whether it has the run's mark, is a helper of an engine, is a rank of torchrun, and has a
    tracer, such as PRoot."""

    is_marked: bool = False
    is_helper: bool = False
    is_rank: bool = False
    is_traced: bool = False


class Freezer:
    """Stops the processes with the mark `mark` below the process `script`, and lets them continue.

    The processes with the run's mark stop, and those that they started, but no helpers of an engine: other
    programs may use the file systems that they serve. The sampler goes on: stopped, it would outlive a
    Bareboat that is killed.
    """

    def __init__(self, mark: str, script: int) -> None:
        self._mark = f"{RUN_VARIABLE}={mark}".encode()
        self._helper_mark = f"{HELPER_VARIABLE}={mark}".encode()
        self._script = script
        self._facts: dict[_Identity, _Facts] = {}
        #: Parents first; so are those that are stopped.
        self._known: list[_Identity] = []
        self._stopped: dict[_Identity, None] = {}
        self._refused: set[int] = set()

    def freeze(self) -> str:
        """Stop all processes of the run. Returns why one of them goes on; empty where none does."""
        self._refused.clear()
        for known in self._known:  # before a search, since they work until then
            self._stop(known)
        for _ in range(_MOST_SEARCHES):
            self._known = self._search()
            for which in self._known:
                if which in self._facts and self._facts[which].is_traced:
                    return f"process {which[0]} has a tracer, such as PRoot, which owns SIGSTOP"
            if not sum(map(self._stop, self._known)):
                break
        return self._why_moving()

    def thaw(self) -> None:
        """Let the processes continue, those first that others started: a parent that waits for a stop of its
        children sees none."""
        for pid, started in reversed(self._stopped):
            if _state(pid)[0] == started:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
        self._stopped.clear()

    def used(self) -> Used | None:
        """What the processes that are stopped have used; None where the kernel does not count it."""
        cpu_ns, wait_ns = {}, {}
        for pid, started in self._stopped:
            try:
                # clock_getcpuclockid(3): the clock of another process, with all threads that it had.
                cpu_ns[pid, started] = time.clock_gettime_ns((~pid << 3) | 2)
                for thread in os.listdir(f"/proc/{pid}/task"):
                    words = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()
                    wait_ns[int(thread)] = int(words[1])
            except (OSError, ValueError, IndexError):
                return None
        return Used(cpu_ns, wait_ns)

    def _stop(self, which: _Identity) -> bool:
        """Stop a process; whether it was going on."""
        pid, started = which
        if which in self._stopped or _state(pid)[0] != started:
            return False
        try:
            os.kill(pid, signal.SIGSTOP)
        except PermissionError:
            if which in self._facts:  # others belong to an engine that is installed with setuid
                self._refused.add(pid)
            return False
        except ProcessLookupError:
            return False
        self._stopped[which] = None
        # A parent that still goes on would see the stop of its child, which is the next one.
        deadline = time.monotonic() + _MOST_PARENT_S
        while _moves(pid, started) and time.monotonic() < deadline:
            time.sleep(0)
        return True

    def _why_moving(self) -> str:
        for pid in self._refused:
            return f"process {pid} may not be stopped"
        deadline = time.monotonic() + _MOST_STOP_S
        while moving := [pid for pid, started in self._stopped if _moves(pid, started)]:
            if time.monotonic() > deadline:
                return f"process {moving[0]} does not stop"
            time.sleep(_PAUSE_S)
        return ""

    def _search(self) -> list[_Identity]:
        """The processes of the run that are to stop, parents first."""
        live = live_processes()
        identities = {pid: (pid, process.started) for pid, process in live.items()}
        facts = {pid: self._facts.get(which) or self._look(pid) for pid, which in identities.items()}
        # A process without a mark may get one when it executes its program.
        self._facts = {identities[pid]: own for pid, own in facts.items() if own.is_marked or own.is_helper}
        tree = below(self._script, live)
        tree += sorted(facts.keys() - set(tree), key=lambda pid: live[pid].started)
        has_agent = any(each.is_rank for each in facts.values())
        chosen: dict[int, None] = {}
        for pid in tree:
            own = facts[pid]
            is_root = own.is_rank if has_agent else own.is_marked
            if not own.is_helper and (is_root or live[pid].parent in chosen):
                chosen[pid] = None
        return [identities[pid] for pid in chosen]

    def _look(self, pid: int) -> _Facts:
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            status = Path(f"/proc/{pid}/status").read_bytes()
        except OSError:  # of another user, or gone
            return _Facts()
        is_marked = self._mark in variables
        return _Facts(
            is_marked=is_marked,
            is_helper=self._helper_mark in variables or status.split(maxsplit=2)[1] in _FILE_SYSTEMS,
            is_rank=is_marked and any(each.startswith(_RANK_OF_TORCHRUN) for each in variables),
            is_traced=b"\nTracerPid:\t0\n" not in status,
        )


def _state(pid: int) -> tuple[int, bytes]:
    """When a process started, and its state, from proc_pid_stat(5); (-1, b"") without it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            words = stream.read().rpartition(b") ")[2].split()
        return int(words[19]), words[0]
    except (OSError, IndexError, ValueError):
        return -1, b""


def _moves(pid: int, started: int) -> bool:
    now, state = _state(pid)
    return now == started and state not in (b"T", b"Z", b"X")
