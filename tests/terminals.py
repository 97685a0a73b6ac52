"""A user's terminal: one with job control, for programs under test, and one that keeps what it shows."""

import io
import os
import pty
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

import pytest

from bareboat.cli import console


class Desk:
    """A pseudo-terminal and a process that has it as its controlling terminal, in a group of its own."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            # A session's leader would be orphaned, and never stop: the job is a child, as a shell's are.
            child = os.fork()
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            if child == 0:
                os.setpgid(0, 0)
                os.tcsetpgrp(0, os.getpgid(0))
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
                os.execvp(argv[0], argv)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            while True:
                status = os.waitpid(child, os.WUNTRACED)[1]
                if os.WIFSTOPPED(status):
                    os.write(1, b"<stopped>")
                    time.sleep(0.2)
                    os.killpg(child, signal.SIGCONT)
                    continue
                break
            # What was typed and nobody has read; only the foreground may read it.
            os.tcsetpgrp(0, os.getpgrp())
            os.write(1, b"<modes %d %d %d %d>" % tuple(termios.tcgetattr(0)[:4]))
            tty.setraw(0, termios.TCSANOW)
            left = b""
            while select.select([0], [], [], 0.1)[0]:
                left += os.read(0, 100)
            os.write(1, b"<left %s code %d><end>" % (left.hex().encode(), os.waitstatus_to_exitcode(status)))
            os._exit(0)
        self.seen = b""

    def until(self, what: bytes, timeout_s: float = 30) -> bytes:
        deadline = time.monotonic() + timeout_s
        while what not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, self.seen
            if select.select([self.master], [], [], left)[0]:
                try:
                    data = os.read(self.master, 4096)
                except OSError:
                    data = b""
                assert data, self.seen
                self.seen += data
        return self.seen

    def type(self, what: bytes) -> None:
        os.write(self.master, what)

    def end(self) -> bytes:
        return self.until(b"<end>")

    @property
    def modes_at_end(self) -> list[int]:
        """The terminal's modes when the program had ended: of input, output, control and local."""
        return [int(word) for word in self.seen.rpartition(b"<modes ")[2].partition(b">")[0].split()]

    def close(self) -> None:
        """Hang up, which ends the session; then make sure of it."""
        os.close(self.master)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def desk() -> Iterator[Callable[[list[str]], Desk]]:
    made: list[Desk] = []

    def make(argv: list[str]) -> Desk:
        made.append(Desk(argv))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called by the test itself, since pytest sets its own streams after the fixtures."""
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(console, "_width", lambda: 80)
    return stream


def screen(text: str) -> list[str]:
    """The lines that a terminal shows."""
    lines = [""]
    for part in text.replace("\r\033[K", "\0").replace("\n", "\1"):
        if part == "\1":
            lines.append("")
        else:
            lines[-1] = "" if part == "\0" else lines[-1] + part
    return lines
