"""Bareboat as a process of its own, and what it leaves behind."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import forked
from tools import started


def bareboat(*arguments: str | Path, store: Path, cwd: Path, timeout_s: float = 300) -> tuple[int, str, str]:
    """Run `bareboat …` to its end; exit code, stdout, stderr."""
    done = forked.run(*arguments, env=environment(store), cwd=cwd, timeout_s=timeout_s)
    return done.returncode, done.stdout, done.stderr


def start_bareboat(*arguments: str | Path, store: Path, cwd: Path) -> subprocess.Popen[str]:
    """Start `bareboat …` in a session of its own, as from a terminal."""
    how = {"env": environment(store), "cwd": cwd, "start_new_session": True}
    return started(command(*arguments), stderr=subprocess.PIPE, **how)


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """What a program's end was: exit code, stdout, stderr."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "bareboat", *map(str, arguments)]


def environment(store: Path) -> dict[str, str]:
    return {**os.environ, "BAREBOAT_STORE": str(store)}


def marked(name: str) -> list[int]:
    """The processes of every run whose name begins so."""
    return _with(re.compile(rb"BAREBOAT_RUN=([0-9a-f]{16}-)?" + re.escape(os.fsencode(name))))


def with_variable(beginning: str) -> list[int]:
    """The user's processes that have an environment variable that begins so."""
    return _with(re.compile(re.escape(os.fsencode(beginning))))


def _with(variable: re.Pattern[bytes]) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(map(variable.match, Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))):
                found.append(int(pid))
        except OSError:
            continue
    return found


def left_after(name: str, patience_s: float = 20.0) -> list[int]:
    """What is left of the runs after the time that ranks are given to clean up."""
    deadline = time.monotonic() + patience_s
    while (found := marked(name)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
