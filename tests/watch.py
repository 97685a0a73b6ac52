"""What is running, and waiting for it to change."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable


def wait_until(holds: Callable[[], bool], *, limit_s: float = 20.0) -> bool:
    """Whether it came to hold. The limit is for a hang: it is not a measurement."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill(pids: Iterable[int]) -> None:
    """Kill processes, of which any may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def processes_with(text: str) -> list[int]:
    """The processes that carry the text in their arguments or in their environment, this one excepted."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        seen = b""
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as stream:
                seen += stream.read()
        if pid != os.getpid() and text.encode() in seen:
            found.append(pid)
    return found
