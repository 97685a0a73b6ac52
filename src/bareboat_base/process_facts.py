"""Facts about one process and those that it started. It imports little: programs that start often use it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


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


def started_by(pid: int) -> Iterator[int]:
    """Its descendants that are what an engine starts: an engine that still prepares the container, or a copy
    of the job script, executes what its parent executes."""
    own = program(pid)
    for child in children(pid):
        if program(child) not in ("", own):
            yield child
        yield from started_by(child)
