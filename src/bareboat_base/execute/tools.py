"""Short commands to tools: run to their end, within a time and an amount of output."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat_base.errors import ToolError, ToolTimeoutError
from bareboat_base.execute.processes import KILL_GRACE_S, Process, below, kill_all, live_processes
from bareboat_base.execute.signals import interrupts_left_to_child, interrupts_let_through
from bareboat_base.outcome import Outcome
from bareboat_base.printable import excerpt, one_line

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: Limit of a tool's output: a queue listing has 120 bytes a line, and up to 100,000 lines.
MOST_BYTES = 32 * 2**20
TIMEOUT_VARIABLE = "BAREBOAT_TOOL_TIMEOUT_S"
#: The setting, after it was read.
tool_timeout_s: float | None = None
#: A question to a tool. A controller that is busy takes 6 s; and with one tool that hangs a verb ends within
#: 10 s, the grace after SIGTERM included.
_ANSWER_S = 7.0
#: A program of the user's environment: its first start may read thousands of files of a busy file system.
START_S = 60.0
#: Questions that are asked side by side.
_AT_ONCE = 6
#: From SIGTERM to SIGKILL.
_TERM_GRACE_S = 1.0
#: Interval of checks whether a silent tool ended, and how long its output may stay open then.
_LOOK_S = 0.1
_LEFT_OPEN_S = 0.5
#: The time that tools get when Bareboat exits, and what is started then, to clean up.
_STOPPED_S = 0.5
_CLEANING_S = 3.0
_CHUNK_BYTES = 2**16
_MOST_SHOWN = 400
#: Set when the threads of `side_by_side` must terminate their tools.
stopping = threading.Event()

log = logging.getLogger("bareboat")


def set_patience(seconds: float | None) -> None:
    """Apply the setting tool_timeout_s."""
    global tool_timeout_s
    tool_timeout_s = seconds


def patience(least_s: float = _ANSWER_S) -> float:
    """The time in seconds within which a tool must answer: the setting tool_timeout_s, or the default for
    this tool where that is longer. A setting below the default for questions shortens all."""
    if tool_timeout_s is None:
        return least_s
    return max(least_s, tool_timeout_s) if tool_timeout_s > _ANSWER_S else tool_timeout_s


class Deadline:
    """The time by which all questions about one subject are answered, such as one scheduler: if its first
    tool hangs, the others are not waited for as long again."""

    def __init__(self) -> None:
        """It begins now."""
        self.total_s = patience()
        self._end = time.monotonic() + self.total_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())


class Watch(Struct, frozen=True):
    """How a running tool is watched. `notice_s`: after this, a note shows which command has not answered;
    `most_bytes`: limit of its stdout; `may_leave`: processes that it started may go on."""

    notice_s: float | None = None
    most_bytes: int = MOST_BYTES
    may_leave: bool = False


_WATCH = Watch()
#: Errors of starting a process that are not the program's.
_LIMITS = frozenset((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM))


def run(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float | None = None,
    folder: str | None = None,
    within: Deadline | None = None,
    watch: Watch = _WATCH,
) -> Outcome:
    """Run a short command to its end and capture its output.

    It runs in a session of its own, without a terminal. Processes left in that session are killed, unless
    `watch` allows them. A missing program is exit code 127, not an exception; a limit of this process or
    machine that keeps every program from starting is an OSError. Raises ToolTimeoutError after `timeout_s`
    seconds (None: `patience`) and at the deadline `within`, and ToolError for too much on stdout; excess
    stderr is dropped. On an error, the tool and all processes below it are terminated.
    """
    log.debug("+ %s", shlex.join(argv))
    limit_s = patience() if timeout_s is None else timeout_s
    late = _late(argv, limit_s)
    if within is not None and (left_s := within.left_s) < limit_s:
        limit_s, late = left_s, _late(argv, within.total_s)
        if not left_s:
            raise late
    began = time.monotonic()
    notice = None
    if watch.notice_s is not None:
        notice = (began + watch.notice_s, f"waiting for {_program(argv)}, {limit_s:g} s at most")
    try:
        given = None if stdin is None else stdin.encode("utf-8", "surrogateescape")
        process = _spawned(argv, environment, folder, has_input=given is not None)
    # Missing, not executable, for another machine, or an argument that cannot be passed.
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _LIMITS:
            raise
        return Outcome(argv=tuple(argv), exit_code=127, stdout="", stderr=str(error), wall_s=0.0)
    try:
        stdout, stderr = _converse(process, given or b"", began + limit_s, watch.most_bytes, notice)
        if not watch.may_leave:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
    except BaseException as error:
        _end_tool(process)
        if isinstance(error, TimeoutError):
            raise late from None
        if isinstance(error, _TooMuch):
            raise _flooded(argv, watch.most_bytes) from None
        raise
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    outcome = Outcome(
        argv=tuple(argv), exit_code=process.returncode, stdout=_text(stdout), stderr=_text(stderr),
        wall_s=time.monotonic() - began,
    )  # fmt: skip
    _log_errors(outcome)
    return outcome


def _spawned(
    argv: Sequence[str], environment: Mapping[str, str] | None, folder: str | None, *, has_input: bool
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=None if environment is None else dict(environment),
        cwd=folder,
        start_new_session=True,
    )


def _log_errors(outcome: Outcome) -> None:
    if outcome.stderr.strip() and log.isEnabledFor(logging.DEBUG):
        for line in excerpt(outcome.stderr.strip()):
            log.debug("  | %s", line)


class _TooMuch(Exception):
    """A tool's output exceeds the limit."""


def _converse(
    process: subprocess.Popen[bytes],
    given: bytes,
    deadline: float,
    most_bytes: int,
    notice: tuple[float, str] | None,
) -> tuple[bytes, bytes]:
    """The tool's output until it exits. Raises TimeoutError and _TooMuch. `notice`: when to log what.

    The tool's exit counts, not the end of its output: a process that it left behind may keep that open.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.fileno(), process.stderr.fileno()
    kept = {out: bytearray(), err: bytearray()}
    reading, left, hurried = {out, err}, memoryview(given), False
    stopped_s = _CLEANING_S if stopping.is_set() else _STOPPED_S
    poll = select.poll()
    for descriptor in reading:
        poll.register(descriptor, select.POLLIN)
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        poll.register(process.stdin.fileno(), select.POLLOUT)
    with _watched_end(process.pid, poll):
        while reading or process.returncode is None:
            now = time.monotonic()
            if now >= deadline:
                if process.returncode is None:
                    raise TimeoutError
                break
            if notice is not None and now >= notice[0]:
                log.warning("%s", notice[1])
                notice = None
            if stopping.is_set() and not hurried:  # time to clean up
                hurried, deadline = True, min(deadline, now + stopped_s)
            for descriptor, _ in poll.poll(1000 * min(deadline - now, _LOOK_S)):
                if process.stdin is not None and descriptor == process.stdin.fileno():
                    left = _fed(descriptor, left)
                    if not left:
                        poll.unregister(descriptor)
                        process.stdin.close()
                        process.stdin = None
                elif descriptor not in kept:
                    poll.unregister(descriptor)  # it exited
                else:
                    data = os.read(descriptor, _CHUNK_BYTES)
                    if not data:
                        poll.unregister(descriptor)
                        reading.discard(descriptor)
                    elif len(kept[descriptor]) + len(data) <= most_bytes:
                        kept[descriptor] += data
                    elif descriptor == out:
                        raise _TooMuch
            if process.returncode is None and process.poll() is not None:
                deadline = min(deadline, time.monotonic() + _LEFT_OPEN_S)
    return bytes(kept[out]), bytes(kept[err])


def _fed(descriptor: int, left: memoryview) -> memoryview:
    """What is left of a tool's input after writing as much as it accepts."""
    try:
        return left[os.write(descriptor, left[:_CHUNK_BYTES]) :]
    except BlockingIOError:
        return left
    except OSError:  # the tool does not read all its input
        return left[:0]


@contextlib.contextmanager
def _watched_end(pid: int, poll: select.poll) -> Iterator[None]:
    """Inside, the poll returns when the process ends; kernels before 5.3 cannot."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        yield
        return
    poll.register(descriptor, select.POLLIN)
    try:
        yield
    finally:
        os.close(descriptor)


def _text(data: bytes) -> str:
    """Decode, with uniform newlines; bytes that are not UTF-8 become lone surrogates."""
    text = data.decode("utf-8", "surrogateescape")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def run_all(
    questions: Sequence[Sequence[str]], within: Deadline, *, environment: Mapping[str, str] | None = None
) -> tuple[Outcome, ...]:
    """Run short commands side by side. One that does not answer has `Outcome.unanswered`."""

    def answer(argv: Sequence[str]) -> Outcome:
        began = time.monotonic()
        try:
            return run(argv, environment=environment, within=within)
        except ToolError as error:
            return Outcome(
                argv=tuple(argv),
                exit_code=Outcome.NO_ANSWER,
                stdout="",
                stderr=f"{error.message}; {error.remedy}",
                wall_s=time.monotonic() - began,
            )

    if not questions:
        return ()
    with side_by_side(min(len(questions), _AT_ONCE)) as pool:
        return tuple(pool.map(answer, questions))


def _late(argv: Sequence[str], limit_s: float) -> ToolTimeoutError:
    words = one_line(shlex.join(argv), limit=_MOST_SHOWN)
    return ToolTimeoutError(
        f"{_program(argv)} did not answer within {limit_s:g} s",
        context=words,
        remedy="run the command by hand to see what it waits for; or allow more time: "
        f"export {TIMEOUT_VARIABLE}={max(60, round(4 * limit_s))}",
    )


def _program(argv: Sequence[str]) -> str:
    """The program that env(1) would start, or the first word."""
    words = iter(argv)
    if next(words) == "env":
        return next((word for word in words if word[:1] != "-" and "=" not in word), "env")
    return argv[0]


def _flooded(argv: Sequence[str], most_bytes: int) -> ToolError:
    words = one_line(shlex.join(argv), limit=_MOST_SHOWN)
    return ToolError(
        f"{argv[0]} printed more than {most_bytes / 2**20:g} MiB and was stopped",
        context=words,
        remedy=f"{words} | head   # shows what it prints",
    )


@contextlib.contextmanager
def side_by_side(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads that run tools. When the caller is stopped or fails, the tools are terminated: they
    have no terminal from which Ctrl-C would reach them."""
    from concurrent.futures import ThreadPoolExecutor  # here, because most commands need none

    with ThreadPoolExecutor(threads, thread_name_prefix="tool") as pool:
        try:
            yield pool
        except BaseException:
            if threading.current_thread() is not threading.main_thread():
                raise  # what others run is none of its business
            stopping.set()
            try:
                pool.shutdown(cancel_futures=True)
            finally:
                stopping.clear()
            raise


def _end_tool(process: subprocess.Popen[bytes]) -> None:
    """Terminate a tool and what it started: its session, its descendants, and processes that hold its output
    open. A process that left all three is not found."""
    mine = os.getpid()
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    pipes = {f"pipe:[{os.fstat(stream.fileno()).st_ino}]" for stream in streams if not stream.closed}
    first = live_processes()
    belong = _of_tool(process.pid, first)
    # A child that was just forked briefly has all our files open.
    belong |= {pid for pid in _holders(pipes) if pid in first and first[pid].parent != mine}

    def left() -> list[int]:
        now = live_processes()
        same = {pid for pid in belong if pid in now and now[pid].started == first[pid].started}
        return sorted(same | _of_tool(process.pid, now))

    for number in (signal.SIGTERM, signal.SIGCONT):
        for pid in left():
            with contextlib.suppress(OSError):
                os.kill(pid, number)
    deadline = time.monotonic() + _TERM_GRACE_S
    while (process.poll() is None or left()) and time.monotonic() < deadline:
        time.sleep(0.02)
    kill_all(left)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILL_GRACE_S)


def _of_tool(pid: int, processes: Mapping[int, Process]) -> set[int]:
    """The tool, its descendants, and the processes of its session."""
    found = {pid} if pid in processes else set()
    return found | set(below(pid, processes)) | {p for p, each in processes.items() if each.session == pid}


def _holders(pipes: Collection[str]) -> Iterator[int]:
    """Other processes of this user that have one of the pipes open."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            folder = f"/proc/{name}/fd"
            if int(name) != os.getpid() and any(
                os.readlink(f"{folder}/{each}") in pipes for each in os.listdir(folder)
            ):
                yield int(name)


def run_in_terminal(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    umask: int = -1,
) -> int:
    """Run a command in the terminal; return its exit code as a shell would. `descriptors`: those that it
    inherits; `umask`: -1 for that of this process."""
    log.debug("+ %s", shlex.join(argv))
    with interrupts_left_to_child():
        try:
            code = subprocess.run(
                list(argv), env=environment, pass_fds=descriptors, umask=umask,
                preexec_fn=interrupts_let_through, check=False,
            ).returncode  # fmt: skip
        except OSError as error:
            raise ToolError(f"{argv[0]} cannot be started: {error.strerror}") from None
    return code if code >= 0 else 128 - code


def which(name: str, *, path: str | None = None) -> str | None:
    """The program that a shell would start."""
    return shutil.which(name, path=path)
