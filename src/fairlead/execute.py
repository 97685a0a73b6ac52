"""The only room that starts processes: short questions to tools, and live job scripts.

Every process of a run carries FAIRLEAD_RUN in its environment, through `env -i`, through containers
and through new sessions. That mark, not a process group, is how a run is found and measured. A process can
lose it; so a run is ended by its job script, below which the kernel keeps whatever the run starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from fairlead.errors import Terminated, ToolError
from fairlead.model import Outcome

log = logging.getLogger("fairlead")

RUN_VARIABLE = "FAIRLEAD_RUN"
#: The job script gives its ranks 10 s after SIGTERM; Fairlead gives the script a little more.
STOP_GRACE_S = 15.0

#: SIGKILL works at once, or not at all.
_KILL_GRACE_S = 5.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def run(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float = 30.0,
    folder: str | None = None,
) -> Outcome:
    """Run a short command to its end and keep what it prints.

    A missing program is exit code 127, not an exception. Raises ToolError after `timeout_s` seconds.
    """
    log.debug("+ %s", shlex.join(argv))
    began = time.monotonic()
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=None if environment is None else dict(environment),
            timeout=timeout_s,
            cwd=folder,
            check=False,
        )
    except OSError as error:  # not there, not ours to start, or no program of this machine's
        return Outcome(argv=tuple(argv), exit_code=127, stdout="", stderr=str(error), wall_s=0.0)
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"{argv[0]} did not answer within {timeout_s:.0f} s", context=shlex.join(argv)
        ) from None
    return Outcome(
        argv=tuple(argv),
        exit_code=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        wall_s=time.monotonic() - began,
    )


def run_in_terminal(argv: Sequence[str]) -> int:
    """Run a command that has the terminal to itself; its exit code as a shell tells it."""
    log.debug("+ %s", shlex.join(argv))
    with interrupts_left_to_child():
        try:
            code = subprocess.run(list(argv), check=False).returncode
        except OSError as error:
            raise ToolError(f"{argv[0]} cannot be started: {error.strerror}") from None
    return code if code >= 0 else 128 - code


def which(name: str, *, path: str | None = None) -> str | None:
    """The program that a shell would start."""
    return shutil.which(name, path=path)


class Live:
    """A job script that is running.

    The script is told by the kernel (PR_SET_PDEATHSIG) when Fairlead dies, however it dies, and then
    ends its ranks by itself.
    """

    def __init__(
        self,
        script: str,
        *,
        run_id: str,
        environment: Mapping[str, str],
        output: IO[bytes] | None = None,
        stdout_apart: bool = False,
    ) -> None:
        """Start `bash script`. With `output` it gets a session of its own and no standard input;
        without, it shares ours and the terminal's signals. `stdout_apart`: ours is for something else, and
        what it prints goes to stderr."""
        log.debug("+ bash %s %s", shlex.quote(script), shlex.quote(run_id))
        self.run_id = run_id
        bash = which("bash")
        if bash is None:
            raise ToolError("there is no bash on PATH", remedy="install bash, or put it on PATH")
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            # bash keeps this: whatever the run starts stays below its script, daemons in new sessions too.
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
            if os.getppid() != parent:  # it died before the line above
                os._exit(1)

        self.spawned_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            [bash, script, run_id],
            env={name: value for name, value in environment.items() if name != RUN_VARIABLE},
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=2 if stdout_apart else output,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=output is not None,
            preexec_fn=die_with_parent,
        )
        self.pidfd = os.pidfd_open(self._process.pid)
        self.exited_ns: int | None = None
        #: Once it has ended: the peak of the largest of its processes, as the kernel counted it.
        self.peak_process_bytes = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code once the script has ended (128 + N for signal N), else None."""
        if self._process.returncode is None:
            # wait4, because Popen.poll() drops what the kernel says of the children's memory.
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                return None
            self.exited_ns = time.monotonic_ns()
            self.peak_process_bytes = usage.ru_maxrss * 1024
            self._process.returncode = os.waitstatus_to_exitcode(status)
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Block until the script ends or the time is up; the end is timed by the kernel's pidfd."""
        if self.poll() is None:
            select.select([self.pidfd], [], [], timeout_s)
        return self.poll()

    @property
    def wall_s(self) -> float:
        end_ns = self.exited_ns if self.exited_ns is not None else time.monotonic_ns()
        return (end_ns - self.spawned_ns) / 1e9

    def ask_to_stop(self) -> None:
        """SIGTERM to the script, which passes it on to its ranks."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """End the run and everything that belongs to it; return the script's exit code."""
        self.ask_to_stop()
        code = self.wait(STOP_GRACE_S)
        if code is None:
            log.warning("the job script %d did not end by itself: killing it", self.pid)
            self._process.send_signal(signal.SIGSTOP)  # it starts nothing in the place of what is ended
            _end(lambda: descendants(self.pid))
            self._process.kill()
            code = self.wait() or 137
        end_strays(self.run_id)
        self.close()
        return code

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def memory_bytes(self, kind: str) -> int:
        """Memory of all processes of the run now. `kind` is "pss" (shared pages divided among their
        users; the kernel walks the page tables, about a millisecond each) or "rss" (quick)."""
        read = _pss_bytes if kind == "pss" else _rss_bytes
        return sum(read(pid) for pid in processes_of(self.run_id))


def processes_of(run_id: str) -> Iterator[int]:
    """The process numbers of this user that carry the run's mark, this process excepted."""
    mark = f"{RUN_VARIABLE}={run_id}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                environment = stream.read()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            yield int(name)


def end_strays(run_id: str) -> None:
    """Kill what is left of a run whose job script has gone, and wait until it is."""
    _end(lambda: list(processes_of(run_id)))


def descendants(pid: int) -> list[int]:
    """The processes below one, however deep, that have not ended; by proc_pid_stat(5)."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as stream:
            state, parent = stream.read().rpartition(b") ")[2].split()[:2]
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(name))
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found[1:]


def _end(left_of: Callable[[], list[int]]) -> None:
    """Kill what is left of a run, and wait until it is gone."""
    deadline = time.monotonic() + _KILL_GRACE_S
    while left := left_of():
        for pid in left:
            log.debug("ending process %d, left over from a run", pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:  # stuck in the kernel, in a dead file system perhaps
            log.warning("processes %s of a run cannot be ended", left)
            return
        time.sleep(0.01)


def _rss_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def _pss_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
            for line in stream:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


@contextlib.contextmanager
def termination_raised() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise Terminated, so that every `finally` runs."""

    def on_signal(number: int, _frame: object) -> None:
        raise Terminated(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupts_left_to_child() -> Iterator[None]:
    """Inside, Ctrl-C is for the job script, which shares our terminal; we wait for it to clean up."""
    before = signal.signal(signal.SIGINT, _nothing)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Inside, SIGINT, SIGTERM and SIGHUP wait, also for the commands that are run: they come at the end. They
    do not come when what is inside fails, which is told instead."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.signal(number, lambda caught, _: came.append(caught)) for number in numbers}
    # Commands inherit it. It is not enough for ourselves: a library's thread may take the signal.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for held in dict.fromkeys(came):
        signal.raise_signal(held)


def _nothing(_number: int, _frame: object) -> None:
    """A handler, not SIG_IGN: an ignored signal would be inherited by the job."""
