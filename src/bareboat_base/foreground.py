"""A command in a container in the place of this process: with its terminal, its signals and its exit code.

The engine's process between the two ends here as soon as the command runs: it would die of Ctrl-C, which the
command may handle. This process is the one to which the command then belongs (PR_SET_CHILD_SUBREAPER).
https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from bareboat_base.errors import ToolError
from bareboat_base.process_facts import children, program

#: The descriptor on which the engine reports in lines of JSON: the command's process as `child-pid`, and its
#: `exit-code`, if the command was started.
REPORT = 198

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
#: The engine gets descriptors with high numbers, which no command uses.
_OPEN_FILES = 256
_LOOK_S = 0.002
#: Signals from the keyboard reach the command itself, which is in the same process group.
_PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGWINCH,
)  # fmt: skip
_MOST_REPORT_BYTES = 4096
#: For a command that cannot start, as in a shell.
_CANNOT_START = 127


def run(
    argv: Sequence[str], *, environment: Mapping[str, str], descriptors: Mapping[int, int], own_init: bool
) -> int:
    """Run the engine's command; return the exit code, -N for signal N. `descriptors`: number for the engine
    -> descriptor here. `own_init`: the command's parent is the container's first process. Raises
    ToolError."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= allowed < _OPEN_FILES:
        raise ToolError(
            f"a container requires {_OPEN_FILES} open files, and the limit is {allowed}",
            remedy=f"ulimit -n {_OPEN_FILES}",
        )
    libc, was_subreaper = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was_subreaper))
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
    report, theirs = os.pipe()
    engine = os.fork()
    if engine == 0:
        _become(argv, environment, {**descriptors, REPORT: theirs}, before)
    os.close(theirs)
    try:
        return _Follower(engine, report, own_init=own_init).follow()
    finally:
        os.close(report)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, was_subreaper.value)
        while signal.sigtimedwait(_PASSED_ON, 0) is not None:
            pass  # it came as the command ended, and was for it
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_like(code: int) -> NoReturn:
    """Exit as the command did: with its exit code, or by its signal without another core dump."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _become(
    argv: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
    mask: Iterable[int],
) -> NoReturn:
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
        for number, descriptor in descriptors.items():
            os.dup2(descriptor, number, inheritable=True)
        os.execve(argv[0], list(argv), dict(environment))
    except OSError as error:
        os.write(2, f"{argv[0]} cannot be started: {error.strerror}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(_CANNOT_START)


class _Follower:
    """Follows the engine's process, and then the command itself."""

    def __init__(self, engine: int, report: int, *, own_init: bool) -> None:
        os.set_blocking(report, False)
        self._engine = engine
        self._report = report
        self._written = b""
        self._own_init = own_init
        self._child: int | None = None
        self._runs = False

    def follow(self) -> int:
        while True:
            code = self._reaped()
            if code is not None:
                return code
            if not self._runs:
                self._release()
            pause = _LOOK_S if not self._runs else 3600.0
            woken = signal.sigtimedwait((*_PASSED_ON, signal.SIGCHLD), pause)
            if woken is not None and woken.si_signo != signal.SIGCHLD and woken.si_code <= 0:
                self._pass_on(woken.si_signo)

    def _reaped(self) -> int | None:
        """The exit code, if the command exited, or the engine before it. The caller may have other children,
        for which it waits itself."""
        is_there = False
        for pid in filter(None, (self._child, self._engine)):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # not yet this process's child, or no longer
                continue
            if not ended:
                is_there = True
                continue
            if pid == self._engine and (self._runs or (os.WIFSIGNALED(status) and self._find_child())):
                # Now the command is this process's child. A signal may end the engine as the command begins.
                self._runs = True
                return self._reaped()
            return self._exit_code(pid, os.waitstatus_to_exitcode(status))
        if is_there:
            return None
        self._read()  # the engine may have been the command's parent to its end
        found = re.search(rb'"exit-code": *(\d+)', self._written)
        return _CANNOT_START if found is None else int(found[1])

    def _exit_code(self, pid: int, code: int) -> int:
        """Raises ToolError where the engine exited without starting the command. It has shown the reason."""
        if pid == self._child:
            return code
        self._read()
        if code >= 0 and b'"exit-code"' not in self._written:
            raise ToolError("the container cannot be started", remedy="bareboat doctor")
        return 128 - code if code < 0 else code

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._written += os.read(self._report, _MOST_REPORT_BYTES)

    def _find_child(self) -> int | None:
        """The command's process, once the engine reported it."""
        if self._child is None:
            self._read()
            found = re.search(rb'"child-pid": *(\d+)', self._written.partition(b"\n")[0])
            self._child = None if found is None else int(found[1])
        return self._child

    def _release(self) -> None:
        """End the engine's process when the command runs."""
        child = self._find_child()
        if child is not None and self._is_started(child):
            self._runs = True
            os.kill(self._engine, signal.SIGKILL)

    def _is_started(self, child: int) -> bool:
        if self._own_init:
            return bool(children(child))
        return program(child) not in ("", program(self._engine))

    def _pass_on(self, number: int) -> None:
        pids: Sequence[int] = (self._engine, *children(self._engine))
        if self._runs and self._child is not None:
            pids = (self._own_init and children(self._child)) or (self._child,)
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
