"""A job script that is running, and its end."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bareboat_base.errors import ToolError
from bareboat_base.execute.processes import (
    descendants,
    end_strays,
    has_signal,
    kill_all,
    processes_of,
    pss_bytes,
    rss_bytes,
)
from bareboat_base.execute.signals import interrupts_let_through
from bareboat_base.execute.tools import which
from bareboat_base.marks import RUN_VARIABLE
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat_base.execute.kept_directories import KeptDirectories

#: The program that follows a run's processes.
SAMPLER = Path(__file__).with_name("sampler.py")
#: The job script gives its ranks 10 s after SIGTERM; the script gets a little more.
STOP_GRACE_S = 15.0
#: What a fork may use beyond the memory of its parent, in bytes.
_FORK_MORE = 4 * 2**20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

log = logging.getLogger("bareboat")
_libc = ctypes.CDLL(None, use_errno=True)


class Live:
    """A job script that is running.

    The kernel signals the script (PR_SET_PDEATHSIG) when Bareboat dies for any reason; the script then
    terminates its ranks.
    """

    def __init__(
        self,
        script: str,
        *,
        mark: str,
        environment: Mapping[str, str],
        output: IO[bytes] | None = None,
        streams: tuple[int, int] = (1, 2),
        usage: Path | None = None,
        descriptors: tuple[int, ...] = (),
    ) -> None:
        """Start `bash script`. With `output` it gets a session of its own and no standard input; otherwise it
        shares ours and the terminal's signals. `streams`: the descriptors for its stdout and stderr then.
        `usage`: a directory, to which the sampler writes what is used. `descriptors`: those inherited."""
        log.debug("+ bash %s %s", shlex.quote(script), shlex.quote(mark))
        self.mark = mark
        bash = which("bash")
        if bash is None:
            raise ToolError("bash not found on PATH", remedy="install bash, or add it to PATH")
        self._bash = bash
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            # Inherited by bash: all that the run starts stays below its script, also daemons in new sessions.
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
            interrupts_let_through()
            if os.getppid() != parent:  # the parent died before the line above
                os._exit(1)

        self._forked_bytes = rss_bytes(parent) + _FORK_MORE
        self.spawned_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            [bash, script, mark],
            env={name: value for name, value in environment.items() if name != RUN_VARIABLE},
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=streams[0] if output is None else output,
            stderr=streams[1] if output is None else subprocess.STDOUT,
            start_new_session=output is not None,
            pass_fds=descriptors,
            preexec_fn=die_with_parent,
        )
        self.pidfd = os.pidfd_open(self._process.pid)
        self._sampler = None if usage is None else _sampler(mark, self.pid, usage)
        self._kept: KeptDirectories | None = None
        self.exited_ns: int | None = None
        #: Once it exited, as the kernel counted: the peak of the largest of its processes, or 0 where this
        #: process, whose fork the kernel counts as one of them, was larger; of all together the seconds on
        #: processors, and the page faults without and with input from a disk.
        self.peak_process_bytes = 0
        self.cpu_s = 0.0
        self.minor_faults = self.major_faults = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code once the script has ended (128 + N for signal N), else None."""
        if self._process.returncode is None:
            # wait4, because Popen.poll() drops the kernel's memory figures.
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                return None
            self.exited_ns = time.monotonic_ns()
            peak_bytes = usage.ru_maxrss * 1024
            self.peak_process_bytes = peak_bytes if peak_bytes > self._forked_bytes else 0
            self.cpu_s = usage.ru_utime + usage.ru_stime
            self.minor_faults, self.major_faults = usage.ru_minflt, usage.ru_majflt
            self._process.returncode = os.waitstatus_to_exitcode(status)
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Block until the script ends or the time is up; the end is timed by the kernel's pidfd."""
        if self.poll() is None:
            select.select([self.pidfd], [], [], timeout_s)
        return self.poll()

    def sample(self, usage: Path) -> None:
        """Start the sampler now, as with `usage` from the beginning."""
        self._sampler = _sampler(self.mark, self.pid, usage)

    def directories(self) -> KeptDirectories:
        """What the run's containers have in memory, for `report_discarded`."""
        if self._kept is None:
            from bareboat_base.execute.kept_directories import KeptDirectories  # not where nothing is kept

            self._kept = KeptDirectories(self.pid, time.time() - self.wall_s)
        return self._kept

    def report_discarded(self, scripts: Path, environment: Mapping[str, str], stderr: int) -> None:
        """When the run has ended: print which files vanished with its containers."""
        if self._kept is not None:
            self._kept.report(self._bash, scripts, environment, stderr)

    @property
    def totals(self) -> dict[str, float]:
        """Once it exited: what the kernel counted."""
        return {
            "cpu_s": self.cpu_s,
            "minor_faults": float(self.minor_faults),
            "major_faults": float(self.major_faults),
        }

    @property
    def wall_s(self) -> float:
        end_ns = self.exited_ns if self.exited_ns is not None else time.monotonic_ns()
        return (end_ns - self.spawned_ns) / 1e9

    def handles_interrupts(self) -> bool:
        """Whether a process below the script, which is no copy of it, handles SIGINT."""
        own = _command_line(self.pid)
        handling = (pid for pid in descendants(self.pid) if has_signal(pid, b"SigCgt", signal.SIGINT))
        return any(_command_line(pid) != own for pid in handling)

    def ask_to_stop(self) -> None:
        """SIGTERM to the script, which passes it on to its ranks."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Terminate the run with all its processes; return the script's exit code."""
        self.ask_to_stop()
        code = self.wait(STOP_GRACE_S)
        if code is None:
            log.warning("the job script %d did not exit after SIGTERM: killing it", self.pid)
            self._process.send_signal(signal.SIGSTOP)  # so that it does not replace processes that are killed
            kill_all(lambda: descendants(self.pid))
            self._process.kill()
            code = self.wait() or 137
        end_strays(self.mark)
        self.close()
        return code

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.terminate()
            self._sampler.wait()
            self._sampler = None
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def process_lines(self) -> list[str]:
        """The run's processes, each as "process PID: COMMAND"."""
        return [
            f"process {pid}: {one_line(_command_line(pid).replace(bytes(1), b' ').decode(errors='replace'))}"
            for pid in processes_of(self.mark)
        ]

    def memory_bytes(self, kind: str) -> int:
        """Memory of all processes of the run now. `kind` is "pss" (shared pages divided among their
        users; the kernel walks the page tables, about a millisecond each) or "rss" (quick)."""
        read = pss_bytes if kind == "pss" else rss_bytes
        return sum(read(pid) for pid in processes_of(self.mark))


def _command_line(pid: int) -> bytes:
    """The words of the process; b"" when it ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _sampler(mark: str, pid: int, folder: Path) -> subprocess.Popen[bytes] | None:
    """The sampler, beside the run; a run without one is measured all the same."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-I", "-S", "-B", str(SAMPLER), mark, str(pid), str(folder)]
    try:
        return subprocess.Popen(
            argv,
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        log.debug("the sampler does not start: %s", error)
        return None
