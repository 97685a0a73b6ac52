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
from dataclasses import dataclass
from pathlib import Path

from bareboat.errors import ToolError
from bareboat.execute import tools
from bareboat.execute.signals import interrupts_left_to_child

_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.2
_END_S = 5.0

log = logging.getLogger("bareboat")


#: What a step creates has the modes that its command sets, whatever the user's umask is.
_UMASK = 0o022


@dataclass(frozen=True, slots=True)
class Data:
    """An argument that is the number of a descriptor, from which this content is read."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An argument that is the number of this open descriptor, which the command inherits."""

    number: int


Word = str | Data | Descriptor


def run_step(
    argv: Sequence[Word],
    *,
    environment: Mapping[str, str],
    show: Callable[[bytes], None],
    stopped: Callable[[], bool] = lambda: False,
    folder: Path | None = None,
) -> int:
    """Run a command without input; return its exit code, 128 + N for signal N. `show`: called with stdout and
    stderr. `folder`: where it starts. Once `stopped`, or when Bareboat exits, the command is killed; the
    sandbox ends with it. Raises ToolError where it cannot start."""
    with _described(argv) as (words, descriptors):
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
                umask=_UMASK,
                cwd=folder,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"{words[0]} cannot be started: {error}") from None
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


def run_shell(argv: Sequence[Word], *, environment: Mapping[str, str]) -> int:
    """The same in the user's terminal."""
    with _described(argv) as (words, descriptors), interrupts_left_to_child():
        try:
            return subprocess.run(
                words, env=dict(environment), pass_fds=descriptors, umask=_UMASK, check=False
            ).returncode
        except OSError as error:
            raise ToolError(f"{words[0]} cannot be started: {error.strerror}") from None


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
    given: list[int] = []
    try:
        for word in argv:
            if isinstance(word, str):
                words.append(word)
                continue
            if isinstance(word, Descriptor):
                words.append(str(word.number))
                given.append(word.number)
                continue
            descriptor = os.memfd_create("bareboat-step", os.MFD_CLOEXEC)
            opened.append(descriptor)
            view = memoryview(word.content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.lseek(descriptor, 0, os.SEEK_SET)
            words.append(str(descriptor))
        yield words, (*opened, *given)
    finally:
        for descriptor in opened:
            os.close(descriptor)
