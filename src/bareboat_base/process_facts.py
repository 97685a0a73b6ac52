"""Facts about one process, for programs that start often: this module imports little."""

from __future__ import annotations

import contextlib
import os


def program(pid: int) -> str:
    """The file that the process executes, which a container's command may have with the engine's name."""
    with contextlib.suppress(OSError):
        found = os.stat(f"/proc/{pid}/exe")
        return f"{found.st_dev}:{found.st_ino}"
    return ""


def children(pid: int) -> tuple[int, ...]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
        return tuple(map(int, stream.read().split()))
    return ()
