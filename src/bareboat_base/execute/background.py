"""A computation in a copy of this process, which goes on meanwhile."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
from collections.abc import Callable, Iterator
from typing import BinaryIO, NoReturn

#: After a result that is whole.
_END = b"."


@contextlib.contextmanager
def in_background(compute: Callable[[], bytes]) -> Iterator[Callable[[], bytes]]:
    """Inside, a copy of this process computes; the function waits for the result. `compute` writes nothing.

    It is computed here where this process has other threads, whose locks a copy would hold forever, where
    no process can be started, and again where the copy failed, so that its error is raised.
    """
    if _has_threads():
        yield functools.cache(compute)
        return
    receiving, sending = os.pipe()
    with open(receiving, "rb") as stream, open(sending, "wb") as sink:
        try:
            child = os.fork()
        except OSError:
            yield functools.cache(compute)
            return
        if child == 0:
            _send(compute, sink)
        sink.close()
        left = [child]

        @functools.cache
        def result() -> bytes:
            data = stream.read()
            _wait(left.pop())
            return data[:-1] if data.endswith(_END) else compute()

        try:
            yield result
        finally:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                _wait(pid)


def _has_threads() -> bool:
    return len(os.listdir("/proc/self/task")) > 1


def _wait(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored
        os.waitpid(pid, 0)


def _send(compute: Callable[[], bytes], sink: BinaryIO) -> NoReturn:
    try:
        gc.disable()  # which would copy the memory that both share
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        with sink:
            sink.write(compute() + _END)
        os._exit(0)
    finally:
        os._exit(1)
