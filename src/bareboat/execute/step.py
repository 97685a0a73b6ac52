"""A step of a build: a command in a sandbox, whose output is passed on while it comes."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

from bareboat.errors import ToolError
from bareboat.execute import tools
from bareboat.execute.signals import interrupts_left_to_child

_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.2
_END_S = 5.0

log = logging.getLogger("bareboat")


def run_step(
    argv: Sequence[str],
    given: Mapping[str, bytes],
    *,
    environment: Mapping[str, str],
    show: Callable[[bytes], None],
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Run a command without input; return its exit code, 128 + N for signal N. `given`: words of `argv` that
    mean descriptors -> what is read from them. `show`: called with stdout and stderr. Once `stopped`, or
    when Bareboat exits, the command is killed; the sandbox ends with it. Raises ToolError where it cannot
    start."""
    with _descriptors(given) as (names, descriptors):
        words = [names.get(word, word) for word in argv]
        log.debug("+ %s", shlex.join(words))
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=descriptors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"{argv[0]} cannot be started: {error}") from None
    try:
        assert process.stdout is not None
        _follow(process, process.stdout.fileno(), show, lambda: stopped() or tools._stopped.is_set())
        if process.poll() is None and (stopped() or tools._stopped.is_set()):
            process.kill()
        code = process.wait()
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        assert process.stdout is not None
        process.stdout.close()
    return code if code >= 0 else 128 - code


def run_shell(argv: Sequence[str], given: Mapping[str, bytes], *, environment: Mapping[str, str]) -> int:
    """The same in the user's terminal."""
    with _descriptors(given) as (names, descriptors), interrupts_left_to_child():
        words = [names.get(word, word) for word in argv]
        try:
            return subprocess.run(words, env=dict(environment), pass_fds=descriptors, check=False).returncode
        except OSError as error:
            raise ToolError(f"{argv[0]} cannot be started: {error.strerror}") from None


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
def _descriptors(given: Mapping[str, bytes]) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """Files in memory with these contents: word -> the number of its descriptor, and all numbers."""
    names: dict[str, str] = {}
    opened: list[int] = []
    try:
        for word, data in given.items():
            descriptor = os.memfd_create("bareboat-step", os.MFD_CLOEXEC)
            opened.append(descriptor)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.lseek(descriptor, 0, os.SEEK_SET)
            names[word] = str(descriptor)
        yield names, tuple(opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)
