"""A step of a build: a command in a sandbox, whose output is passed on while it comes."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bareboat_base.errors import ToolError
from bareboat_base.execute import tools

_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.2
#: The guard needs five seconds at most.
_END_S = 7.0
_GUARD = Path(__file__).with_name("guard_program.py")

log = logging.getLogger("bareboat")


#: What a step creates has the modes that its command sets, whatever the user's umask is.
_UMASK = 0o022


class Data(Struct, frozen=True):
    """An argument that is the number of a descriptor, from which this content is read."""

    content: bytes


Word = str | Data


def run_step(
    argv: Sequence[Word],
    *,
    environment: Mapping[str, str],
    show: Callable[[bytes], None],
    is_sandbox: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Run a command without input; return its exit code, 128 + N for signal N. `show`: called with stdout and
    stderr. Once `stopped`, or when Bareboat exits or is killed, the command ends,
    as `guard_program` describes. Raises ToolError where it cannot start, or gets no session keyring."""
    ours, theirs = socket.socketpair()
    with _described(argv) as (words, descriptors), ours:
        log.debug("+ %s", shlex.join(words))
        kind = "sandbox" if is_sandbox else "tool"
        guard = [sys.executable, "-I", "-S", "-B", str(_GUARD), kind, str(theirs.fileno())]
        with theirs:
            try:
                process = subprocess.Popen(
                    [*guard, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=(*descriptors, theirs.fileno()),
                    start_new_session=True,
                    umask=_UMASK,
                )
            except (OSError, ValueError) as error:
                raise ToolError(f"{words[0]} cannot be started: {error}") from None

        def is_over() -> bool:
            return stopped() or tools.stopping.is_set()

        try:
            assert process.stdout is not None
            _follow(process, process.stdout.fileno(), show, is_over)
            while not is_over():  # it may run on without its output
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
                    break
        finally:
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_WR)  # the guard ends what still runs
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()
        code = process.wait()
        reason = b""
        with contextlib.suppress(OSError):
            reason = ours.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
    if reason:
        raise ToolError(f"{words[0]} cannot be started: {reason.decode(errors='replace')}")
    return code if code >= 0 else 128 - code


def run_shell(argv: Sequence[Word], *, environment: Mapping[str, str]) -> int:
    """A sandbox in the user's terminal."""
    with _described(argv) as (words, descriptors):
        words = [sys.executable, "-I", "-S", "-B", str(_GUARD), "shell", "-", *words]
        return tools.run_in_terminal(words, environment=environment, descriptors=descriptors, umask=_UMASK)


def _follow(
    process: subprocess.Popen[bytes],
    output: int,
    show: Callable[[bytes], None],
    stopped: Callable[[], bool],
) -> None:
    """Pass on the output until it ends."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while not stopped():
        if not poll.poll(1000 * _LOOK_S):
            if process.poll() is not None:  # what it left behind holds its output open
                return
            continue
        data = os.read(output, _CHUNK_BYTES)
        if not data:
            return
        show(data)


@contextlib.contextmanager
def _described(argv: Sequence[Word]) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """The arguments as text, with files in memory for their data, and the descriptors of those."""
    words: list[str] = []
    opened: list[int] = []
    try:
        for word in argv:
            if isinstance(word, str):
                words.append(word)
                continue
            descriptor = os.memfd_create("bareboat-step", os.MFD_CLOEXEC)
            opened.append(descriptor)
            view = memoryview(word.content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.lseek(descriptor, 0, os.SEEK_SET)
            words.append(str(descriptor))
        yield words, tuple(opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)
