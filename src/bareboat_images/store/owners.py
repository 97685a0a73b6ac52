"""The processes that use a store: an identifier for each, and whether it is dead."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

from bareboat_base.expressions import expression

_OWNER = expression(r"(?P<space>.+)-(?P<pid>\d+)-(?P<start>\d+)")


def owner() -> str:
    """An identifier of this process, unique among all machines that share the store."""
    return _owner(os.getpid())


@functools.cache
def _owner(pid: int) -> str:
    return owner_of(pid)


def owner_of(pid: int) -> str:
    """The same of another process on this machine."""
    return f"{_pid_space()}-{pid}-{_start_ticks(pid)}"


def is_dead(owner: str) -> bool:
    """Whether the process is known to be dead; False for processes on other machines."""
    found = _OWNER.fullmatch(owner)
    if found is None or found["space"] != _pid_space():
        return False
    return _start_ticks(int(found["pid"])) != int(found["start"])


def is_alive(owner: str) -> bool:
    """Whether the process is known to be alive; False for processes on other machines."""
    found = _OWNER.fullmatch(owner)
    return found is not None and found["space"] == _pid_space() and not is_dead(owner)


def _pid_space() -> str:
    """The scope of process IDs: the host since its last boot, and the PID namespace. Host names are not
    unique: many machines are called localhost."""
    boot, namespace = "", 0
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{os.uname().nodename}-{boot}-{namespace}"


def _start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat (proc(5)), which distinguishes processes that reuse an ID. 0 for a process
    that ended, also before its parent waited for it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
