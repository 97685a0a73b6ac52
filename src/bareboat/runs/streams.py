"""The output of a run on this machine: shown where it would go anyway, and kept in the run's directory.

All output is copied through Bareboat: through a pipe, and to a terminal through a pseudo-terminal of the same
size and modes. The terminal stays the command's input, with its keys and its job control.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from bareboat.runs.terminal import Terminal
from bareboat_base import execute
from bareboat_base.errors import StoreError

log = logging.getLogger("bareboat")

_CHUNK_BYTES = 1 << 16
#: The output that is kept: its beginning up to this size, and its end.
_MOST_BYTES = 100 << 20
_TAIL_BYTES = 1 << 16
#: How long the pipe may stay silent once all processes of the run ended: one that is not found may hold it.
_LEFT_OPEN_S = 0.5


class Streams:
    """Where the job script writes. `descriptors`: those for its stdout and stderr."""

    def __init__(self, *, stdout_apart: bool, by_rank: bool) -> None:
        """`stdout_apart`: stdout is needed for something else, so the script's goes to stderr. `by_rank`: the
        launcher keeps each rank's output."""
        targets = (2 if stdout_apart else 1, 2)
        self._targets: dict[int, int] = {}  # the pipe's end that is read -> where its data goes
        self._written: list[int] = []
        self._log: int | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._failure: OSError | None = None
        self._kept_bytes = self._left_out_bytes = 0
        self._tail = b""
        self._terminals: dict[int, Terminal] = {}  # by the end that is read
        self._job = 0  # the job script's process
        pipes: dict[tuple[int, int], int] = {}
        streams = []
        for target in targets:
            state = os.fstat(target)
            # One pipe for both when they go to one place, so that their order is kept.
            place = (state.st_dev, state.st_ino)
            if place not in pipes:
                # If the launcher keeps each rank's output, no rank has a terminal as its output.
                reads, pipes[place] = self._opened(target, is_terminal=os.isatty(target) and not by_rank)
                self._targets[reads] = target
                self._written.append(pipes[place])
            streams.append(pipes[place])
        self.descriptors = (streams[0], streams[1])

    def _opened(self, target: int, *, is_terminal: bool) -> tuple[int, int]:
        """A pipe also for a terminal, where the machine has no free pseudo-terminal."""
        with contextlib.suppress(OSError):
            made = Terminal(target) if is_terminal else None
            if made is not None:
                self._terminals[made.reads] = made
                return made.reads, made.writes
        return os.pipe()

    @contextlib.contextmanager
    def copied(self, path: Path) -> Iterator[None]:
        """Inside, output is copied, also to the file `path`; at the end all of it was. Raises StoreError
        where a part could not be written to its destination."""
        if self._targets:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._log = os.open(path, flags, 0o600)
            except OSError as error:
                self._not_kept(error)
            self._thread = threading.Thread(target=self._copy, name="output", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            self.started()
            self._ended.set()
            if self._thread is not None:
                self._thread.join()
            if self._log is not None:
                os.close(self._log)
        if self._failure is not None:
            raise StoreError(
                f"output of the run could not be written: {self._failure.strerror}",
                context=f"it is kept in {path}" if self._log is not None else "",
                remedy="write to a file on a disk with free space: bareboat … > FILE",
            )

    def _is_of_run(self, pid: int) -> bool:
        return bool(self._job) and pid in execute.descendants(self._job)

    def started(self, job: int = 0) -> None:
        """The script has its ends of the pipes: close ours, so that the output has an end. `job`: its process
        ID."""
        self._job = job or self._job
        for descriptor in self._written:
            os.close(descriptor)
        self._written = []

    def _copy(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        poll = select.poll()
        for descriptor in self._targets:
            poll.register(descriptor, select.POLLIN)
        while self._targets:
            found = poll.poll(1000 * _LEFT_OPEN_S)
            for terminal in self._terminals.values():
                terminal.follow(self._is_of_run)
            if not found and self._ended.is_set():
                break
            for descriptor, _ in found:
                data = self._read(descriptor)
                if data:
                    self._keep(data)
                if not data or not self._show(self._targets[descriptor], data):
                    poll.unregister(descriptor)
                    self._close(descriptor)
        for descriptor in list(self._terminals):
            self._close(descriptor)
        self._keep_tail()

    def _read(self, descriptor: int) -> bytes:
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except OSError:  # how a pseudo-terminal ends
            return b""

    def _close(self, descriptor: int) -> None:
        """If nobody reads the output, the command gets SIGPIPE as it would without the pipe."""
        del self._targets[descriptor]
        if (terminal := self._terminals.pop(descriptor, None)) is not None:
            terminal.restore(self._is_of_run)
        os.close(descriptor)

    def _show(self, target: int, data: bytes) -> bool:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(target, left) :]
            except BlockingIOError:
                waiting = select.poll()
                waiting.register(target, select.POLLOUT)
                waiting.poll()
            except OSError as error:
                # A closed pipe and a closed terminal end the command; other failures are errors.
                if error.errno not in (errno.EPIPE, errno.EIO):
                    self._failure = error
                return False
        return True

    def _keep(self, data: bytes) -> None:
        if self._log is None:
            return
        kept = data[: max(_MOST_BYTES - self._kept_bytes, 0)]
        self._kept_bytes += len(kept)
        if len(kept) < len(data):
            rest = self._tail + data[len(kept) :]
            self._tail = rest[-_TAIL_BYTES:]
            self._left_out_bytes += len(rest) - len(self._tail)
        self._write(kept)

    def _keep_tail(self) -> None:
        if self._left_out_bytes:
            self._write(f"\nbareboat: {self._left_out_bytes:,} bytes of output were not kept\n".encode())
        self._write(self._tail)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left and self._log is not None:
                left = left[os.write(self._log, left) :]
        except OSError as error:
            self._not_kept(error)

    def _not_kept(self, error: OSError) -> None:
        """Go on without the file: the run is more important than its log."""
        log.warning("the rest of the output is not kept: %s", error.strerror)
        if self._log is not None:
            os.close(self._log)
            self._log = None
