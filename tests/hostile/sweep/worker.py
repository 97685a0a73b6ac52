"""Invocations one after another, each in a child of an interpreter that has everything imported.

A child is a whole process: its hangs, exits, descriptors and limits are its own, and whatever it starts and
leaves running becomes this process's child (PR_SET_CHILD_SUBREAPER), where it is found and ended.
"""

import contextlib
import ctypes
import gc
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import forked
from hostile.sweep.invocations import Case
from hostile.sweep.surroundings import SURROUNDINGS, Surrounding, wrapped
from hostile.sweep.world import World

LIMIT_S = 10.0
_GRACE_S = 2.0
#: Of stdout and stderr so much is kept.
_KEPT_BYTES = 1 << 20
_SPACE_BYTES = 8 << 30
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one invocation. `code`: None when it did not end in time, negative for a signal."""

    code: int | None
    out: bytes
    err: bytes
    err_bytes: int
    wall_s: float
    changes: tuple[str, ...]
    processes: tuple[str, ...]


def answer(case: Case, world: World, surrounding: Surrounding, *, real: bool = False) -> Answer:
    """Invoke it in this world. `real`: as a process of its own from the start, not in a child of this one."""
    if case.files:
        surrounding.undo(world)
        for name, content in case.files:
            path = world.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        surrounding.prepare(world)
    given = dict(world.files())
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            _become(case, world, surrounding, real=real)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(97)
    code = _ended(pid, began + LIMIT_S)
    wall_s = time.monotonic() - began
    processes = _left(patience_s=_GRACE_S if code is not None else 0.0)
    out, err = world.top / "out", world.top / "err"
    changes = tuple(world.changes(given))
    made = Answer(
        code=code, out=_head(out), err=_head(err), err_bytes=err.stat().st_size if err.exists() else 0,
        wall_s=wall_s, changes=changes, processes=processes if code is not None else (),
    )  # fmt: skip
    if changes or case.files:
        surrounding.undo(world)
        world.restore()
        surrounding.prepare(world)
    return made


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_KEPT_BYTES)
    except FileNotFoundError:
        return b""


def _become(case: Case, world: World, surrounding: Surrounding, *, real: bool) -> None:
    """In the child: everything as a shell would set it up, then the command."""
    os.setsid()
    asked = surrounding.environment(world) | dict(case.environment)
    environment = {name: value for name, value in asked.items() if value is not None}
    os.chdir(world.cwd)
    for number, name in ((1, "out"), (2, "err")):
        made = os.open(world.top / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(made, number)
        os.close(made)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null:
        os.close(null)
    space = surrounding.space_bytes or _SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in surrounding.closed:
        os.close(number)
    surrounding.enter(world)
    if real:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        argv = [os.fsencode(word) for word in (sys.executable, "-m", "bareboat", *case.argv)]
        os.execve(sys.executable, argv, environment)
    os._exit(forked.invoke(list(case.argv), environment))


def _ended(pid: int, deadline: float) -> int | None:
    """Wait for the child. Orphans are reaped meanwhile, as by init: some tools wait until theirs are gone."""
    descriptor = os.pidfd_open(pid)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            select.select([descriptor], [], [], min(left_s, 0.02))
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == pid:
                    return os.waitstatus_to_exitcode(found[1])
        return None
    finally:
        os.close(descriptor)


def _left(patience_s: float) -> tuple[str, ...]:
    """What the invocation left running, which is ended. Orphans are children of this process by now."""
    deadline = time.monotonic() + patience_s
    while _has_children() and time.monotonic() < deadline:
        time.sleep(0.02)
    if not _has_children():
        return ()
    from bareboat_base.execute import descendants

    names = tuple(_name_of(pid) for pid in descendants(os.getpid()))
    while _has_children():
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return names


def _has_children() -> bool:
    """Whether a child is left that has not ended; those that have are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return "?"


def main() -> None:
    """stdin: lists of (surroundings' name, case, whether as a real process); stdout: an Answer for each."""
    top = Path(sys.argv[1])
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    forked.import_everything()
    gc.freeze()  # no child copies pages for the sake of garbage that is none
    world = World(top)
    world.build()
    at, surrounding = "plain", SURROUNDINGS["plain"]
    with contextlib.suppress(EOFError):
        while True:
            for name, case, real in pickle.load(sys.stdin.buffer):
                if name != at:
                    surrounding.undo(world)
                    at, surrounding = name, SURROUNDINGS[name]
                    surrounding.prepare(world)
                pickle.dump(answer(case, world, surrounding, real=real or surrounding.real), answers)
                answers.flush()
    surrounding.undo(world)
    world.close()


Asked = tuple[str, Case, bool]


class Workers:
    """Workers with a world each, below one directory. `wrapper`: surroundings that need one."""

    def __init__(self, folder: Path, count: int, *, wrapper: str = "plain") -> None:
        self._processes = []
        for number in range(count):
            top = folder / str(number)
            top.mkdir(parents=True)
            command = [sys.executable, "-c", "from hostile.sweep.worker import main; main()", str(top)]
            process = subprocess.Popen(
                wrapped(wrapper, top, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            self._processes.append(process)

    def ask(self, asked: Sequence[Asked]) -> list[tuple[str, Case, Answer]]:
        """Have invocations answered. All of one surroundings go to one worker, and the plain ones to all."""
        parts: list[list[Asked]] = [[] for _ in self._processes]
        places: dict[str, int] = {}
        for number, each in enumerate(asked):
            place = number if each[0] == "plain" else places.setdefault(each[0], len(places))
            parts[place % len(parts)].append(each)
        with ThreadPoolExecutor(len(parts)) as pool:
            answers = pool.map(self._ask, self._processes, parts)
            return [one for each in answers for one in each]

    def _ask(
        self, process: subprocess.Popen[bytes], asked: Sequence[Asked]
    ) -> list[tuple[str, Case, Answer]]:
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump(asked, process.stdin)
        process.stdin.flush()
        return [(name, case, pickle.load(process.stdout)) for name, case, _ in asked]

    def close(self) -> None:
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
        for process in self._processes:
            process.wait()
