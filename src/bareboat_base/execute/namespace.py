"""A user namespace with the user's subordinate IDs, and a program that runs in it."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from bareboat_base.errors import PlanError, ToolError

#: (first, count) of each range; inside, they follow on each other from 1.
Ranges = Sequence[tuple[int, int]]

_MAPPERS = (("newuidmap", "/etc/subuid"), ("newgidmap", "/etc/subgid"))
_END_S = 5.0


class Namespace(Struct):
    """The namespace while its program runs. `descriptor`: of the namespace; `count`: how many IDs it has."""

    descriptor: int
    count: int
    _process: subprocess.Popen[str]
    _lock: threading.Lock

    def ask(self, **request: Any) -> dict[str, Any]:
        """The program's answer to a request. Raises ToolError with its error."""
        assert self._process.stdin is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
                answer = _read(self._process)
            except OSError as error:
                raise ToolError(f"the process in the user namespace ended: {error.strerror}") from None
        if "error" in answer:
            raise ToolError(answer["error"])
        return answer


@contextlib.contextmanager
def subordinate(program: Path) -> Iterator[Namespace]:
    """Start a Python program in a new user namespace, in which this user is root and the subordinate IDs
    follow. It makes the namespace itself, prints a line, and waits. Raises PlanError with what is missing."""
    found = [_ranges(path) for _, path in _MAPPERS]
    for name, _ in _MAPPERS:
        if shutil.which(name) is None:
            raise PlanError(
                f"subordinate IDs need {name}, which is not installed",
                remedy="sudo apt-get install uidmap, or: sudo dnf install shadow-utils",
            )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = _read(process)
        if "error" in said:
            raise PlanError(
                "--ids cannot make a user namespace", context=said["error"],
                remedy="bareboat doctor   # names what prevents it, and the fix",
            )  # fmt: skip
        for (name, path), own, ranges in zip(_MAPPERS, (os.getuid(), os.getgid()), found, strict=True):
            _map(name, path, process.pid, own, ranges)
        process.stdin.write("\n")
        process.stdin.flush()
        descriptor = os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            count = 1 + min(sum(size for _, size in ranges) for ranges in found)
            yield Namespace(descriptor, count, process, threading.Lock())
        finally:
            os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise ToolError("the process in the user namespace ended", remedy="free some memory, and try again")
    found: dict[str, Any] = json.loads(line)
    return found


def _ranges(path: str) -> Ranges:
    """The user's ranges in /etc/subuid or /etc/subgid. Raises PlanError where there is none."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    found = []
    with contextlib.suppress(OSError), open(path) as stream:
        for line in stream:
            name, _, rest = line.strip().partition(":")
            first, _, count = rest.partition(":")
            if name in (user, str(uid)) and first.isdigit() and count.isdigit():
                found.append((int(first), int(count)))
    if not found:
        raise PlanError(
            f"{user} has no subordinate IDs: {path} has no range",
            context="--ids needs them, because a chown that is checked needs more than one user ID",
            remedy=f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}, "
            "or build without --ids",
        )
    return found


def _map(name: str, path: str, pid: int, own: int, ranges: Ranges) -> None:
    words = [name, str(pid), "0", str(own), "1"]
    inside = 1
    for first, count in ranges:
        words += [str(inside), str(first), str(count)]
        inside += count
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlanError(
            f"{name} cannot map the ranges of {path}",
            context=done.stderr.strip()[-400:],
            remedy="bareboat doctor   # see: subordinate ids",
        )
