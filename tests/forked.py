"""Bareboat in a child of an interpreter that has everything imported, which saves most of its time.

A child is a whole process, with an environment, a working directory, descriptors, limits and an end of its
own. It differs from `python -m bareboat` in what an interpreter does before a program's first line, and by
its command line in /proc; tests of these, and of what is killed or typed at, start real processes
(`processes.command`).
"""

import contextlib
import functools
import gc
import importlib
import io
import logging
import os
import pickle
import pkgutil
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The interpreter reads these before it begins: with other values the process is a real one.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
#: That of the interpreter that forks: what tests begin with, which conftest.py sets.
ENVIRONMENT: dict[str, str] = {}
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


def run(
    *words: str | Path, env: Mapping[str, str] | None = None, cwd: str | Path | None = None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `bareboat …` to its end, as `subprocess.run` with its output as text.

    Raises:
        subprocess.TimeoutExpired: it was still running, and has been killed.
    """
    arguments = [os.fspath(word) for word in words]
    environment = dict(os.environ if env is None else env)
    if _at_start(environment) != _at_start(ENVIRONMENT):
        return subprocess.run(
            [sys.executable, "-m", "bareboat", *arguments],
            env=environment, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    umask = os.umask(0o077)
    os.umask(umask)
    limits = {limit: resource.getrlimit(limit)[0] for limit in _LIMITS}
    call = _Call(arguments, environment, str(Path(cwd or ".").absolute()), umask, limits)
    return _server().run(call, timeout_s)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


def cpu_s() -> float:
    """The CPU time of all children that have ended."""
    return _server().cpu_s if _server.cache_info().currsize else 0.0


@functools.cache
def _server() -> "_Server":
    return _Server()


@dataclass(frozen=True, slots=True)
class _Call:
    """What a child gets from its caller. `limits`: the soft ones."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    umask: int
    limits: dict[int, int]


class _Server:
    """The interpreter that forks. It ends with this process, whose end closes the socket between them."""

    #: What its children took so far.
    cpu_s = 0.0

    def __init__(self) -> None:
        self._asks, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from forked import serve; serve({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # signals that tests send to their own group do not reach it
                env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def run(self, call: _Call, timeout_s: float) -> subprocess.CompletedProcess[str]:
        words = ["bareboat", *call.arguments]
        own, theirs = socket.socketpair()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        with own, open(out, "rb", 0) as stdout, open(err, "rb", 0) as stderr:
            with theirs:
                socket.send_fds(self._asks, [b"."], [theirs.fileno(), 0, out_end, err_end])
            os.close(out_end)
            os.close(err_end)
            pickled = pickle.dumps(call)
            own.sendall(len(pickled).to_bytes(4, signed=True) + pickled)
            pid = _number(own)
            found: dict[Any, list[bytes]] = {stdout: [], stderr: [], own: []}
            if not _read(found, time.monotonic() + timeout_s):
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout_s)
        ended = b"".join(found[own])
        if len(ended) < 8:
            raise RuntimeError("the interpreter that forks for tests has ended")
        code, cpu_ms = (int.from_bytes(part, signed=True) for part in (ended[:4], ended[4:]))
        self.cpu_s += cpu_ms / 1000
        return subprocess.CompletedProcess(words, code, _text(found[stdout]), _text(found[stderr]))


def _read(found: Mapping[Any, list[bytes]], deadline: float) -> bool:
    """Read all to their ends; whether these came in time. Without a thread, which some tests would notice."""
    with selectors.DefaultSelector() as selector:
        for each in found:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() > deadline:
                return False
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                found[key.fileobj].append(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
    return True


def _text(chunks: Sequence[bytes]) -> str:
    """As subprocess makes it."""
    with io.TextIOWrapper(io.BytesIO(b"".join(chunks))) as text:
        return text.read()


def _number(call: socket.socket) -> int:
    received = call.recv(4, socket.MSG_WAITALL)
    if len(received) < 4:
        raise RuntimeError("the interpreter that forks for tests has ended")
    return int.from_bytes(received, signed=True)


def serve(descriptor: int) -> None:
    """Fork a child for each call that arrives, until the other side closes the socket."""
    asks = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    import_everything()
    gc.freeze()  # no child copies pages for the sake of garbage that is none
    with selectors.DefaultSelector() as selector:
        selector.register(asks, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is asks:
                    asked, descriptors, _, _ = socket.recv_fds(asks, 1, 4)
                    if not asked:
                        return
                    own = socket.socket(fileno=descriptors[0])
                    pid = _fork(own, descriptors[1:])
                    own.sendall(pid.to_bytes(4, signed=True))
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, own))
                else:
                    pid, own = key.data
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    _, status, usage = os.wait4(pid, 0)
                    with own, contextlib.suppress(BrokenPipeError):
                        for number in (
                            os.waitstatus_to_exitcode(status),
                            round((usage.ru_utime + usage.ru_stime) * 1000),
                        ):
                            own.sendall(number.to_bytes(4, signed=True))


def _fork(own: socket.socket, streams: list[int]) -> int:
    call: _Call = pickle.loads(own.recv(_number(own), socket.MSG_WAITALL))
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_become(call, streams))
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(97)
    for each in streams:
        os.close(each)
    return pid


def _become(call: _Call, streams: list[int]) -> int:
    # In the caller's group, its end would orphan that group: a stopped process there gives all of it SIGHUP.
    os.setsid()
    for number, each in enumerate(streams):
        os.dup2(each, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.umask(call.umask)
    for limit, soft in call.limits.items():
        resource.setrlimit(limit, (soft, resource.getrlimit(limit)[1]))
    os.chdir(call.folder)
    return invoke(call.arguments, call.environment)


def import_everything() -> None:
    """What any verb imports, so that no child spends time on it."""
    for top in ("bareboat_base", "bareboat_images", "bareboat", "bareboat_shim", "bareboat_study"):
        package = importlib.import_module(top)
        for module in pkgutil.walk_packages(package.__path__, f"{top}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)


def invoke(arguments: list[str], environment: dict[str, str]) -> int:
    """In the child: `bareboat …` with this environment and the descriptors 0 to 2; its exit code."""
    from bareboat.cli.main import entry

    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, _stream(number))
    logging.root.handlers.clear()  # what was imported may have logged
    sys.argv = ["bareboat", *arguments]
    code = 0
    try:
        entry()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        if sys.stderr is not None:
            traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = 120
    return code & 255


def _stream(number: int) -> io.TextIOWrapper | None:
    """As the interpreter makes its own when it starts; none where the descriptor is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    raw = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
    errors = "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=number == 2)
