"""A program in a terminal: TERM, its keys, job control, window size and modes, while its output is kept."""

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from terminals import Desk, desk  # noqa: F401
from tools import tool


@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_term(engine: str, python: Path, tmp_path: Path) -> None:
    words = [
        sys.executable, "-m", "bareboat", "run", "-q", "--engine", engine, "--python", str(python),
        "--store", str(tmp_path / "store"), "--", "sh", "-c", "echo term=$TERM color=$COLORTERM end",
    ]  # fmt: skip
    environment = {"PATH": "/usr/bin:/bin", "TERM": "vt220", "COLORTERM": "truecolor", "HOME": str(tmp_path)}
    terminal = ["script", "-qec", subprocess.list2cmdline(words).replace("$", r"\$"), "/dev/null"]
    shown = {
        where: subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=tmp_path, check=True)
        for where, argv in (("terminal", terminal), ("pipe", words))
    }
    assert "term=vt220 color=truecolor end" in shown["terminal"].stdout
    assert "vt220" not in shown["pipe"].stdout
    assert "truecolor" not in shown["pipe"].stdout


#: Prints each new size of the window; ends by Ctrl-C.
SIZES = """
import os, signal, sys, time
def changed(*_):
    os.write(1, b"size %d %d\\n" % os.get_terminal_size(1))
signal.signal(signal.SIGWINCH, changed)
changed()
os.write(2, b"ready\\n")
try:
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
#: Reads a key without Enter, as a program of curses does that has its output as its terminal.
CURSES = """
import curses, os, sys
curses.setupterm("xterm", 1)
screen = curses.initscr()
curses.noecho(); curses.cbreak()
screen.addstr("press"); screen.refresh()
key = screen.getkey()
if key == "k":
    os.kill(os.getpid(), 9)
curses.endwin()
print("key", key)
"""


def run_words(tmp_path: Path, *command: str, engine: str = "native", python: Path | None = None) -> list[str]:
    chosen = [] if python is None else ["--python", str(python)]
    return [sys.executable, "-m", "bareboat", "run", "-q", "--engine", engine, *chosen,
            "--store", str(tmp_path / "store"), "--", *command]  # fmt: skip


def kept(tmp_path: Path, part: str = "") -> bytes:
    (log,) = tmp_path.glob(f"store/runs/*/{part}output.log")
    return log.read_bytes()


def resize(shown: Desk, lines: int, columns: int) -> None:
    fcntl.ioctl(shown.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_window_size_and_job_control_work_and_output_is_kept(
    engine: str,
    desk: Callable[[list[str]], Desk],  # noqa: F811
    python: Path,
    tmp_path: Path,
) -> None:
    shown = desk(run_words(tmp_path, "python", "-c", SIZES, engine=engine, python=python))
    shown.until(b"ready")
    resize(shown, 33, 101)
    shown.until(b"size 101 33")
    shown.type(b"\x1a")
    shown.until(b"<stopped>")
    time.sleep(0.5)
    resize(shown, 44, 77)
    shown.until(b"size 77 44")  # it goes on after fg
    shown.type(b"\x03")
    seen = shown.end()
    assert b"interrupted" in seen or b"code 130>" in seen
    assert b"size 77 44\n" in kept(tmp_path)
    assert b"\r" not in kept(tmp_path)


def test_ctrl_backslash_reaches_the_program(
    desk: Callable[[list[str]], Desk],  # noqa: F811
    tmp_path: Path,
) -> None:
    shown = desk(
        run_words(
            tmp_path, "sh", "-c", "trap 'echo quit; exit 7' QUIT; echo ready; while :; do sleep .1; done"
        )
    )
    shown.until(b"ready")
    shown.type(b"\x1c")
    assert b"code 7>" in shown.end()
    assert b"quit\n" in kept(tmp_path)


#: Prints how many times it was interrupted.
INTERRUPTS = """
import signal, time
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
signal.signal(signal.SIGTERM, lambda *_: None)
print("ready", flush=True)
while not came:
    time.sleep(0.02)
time.sleep(0.5)
print("interrupts", len(came), flush=True)
"""


@pytest.mark.parametrize("sender", ["terminal", "kill"])
def test_each_interrupt_reaches_the_program_once(
    sender: str,
    desk: Callable[[list[str]], Desk],  # noqa: F811
    tmp_path: Path,
) -> None:
    shown = desk(run_words(tmp_path, sys.executable, "-c", INTERRUPTS))
    shown.until(b"ready")
    if sender == "terminal":
        shown.type(b"\x03")
    else:  # to Bareboat alone, although it is in the foreground
        os.kill(os.tcgetpgrp(shown.master), signal.SIGINT)
    assert b"code 0>" in shown.end()
    assert b"interrupts 1\n" in kept(tmp_path)
    (record,) = tmp_path.glob("store/runs/*/record.json")
    assert json.loads(record.read_text())["end"]["text"] == "interrupted"


#: Handles an interrupt in its own time, and has an exit code for it.
SAVES = """
import os, signal, sys, time
def save(*_):
    time.sleep(1.5)
    os.write(1, b"saved\\n")  # print() may be interrupted in itself
    sys.exit(9)
signal.signal(signal.SIGINT, save)
print("ready", flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.mark.parametrize("engine", ["native", "charliecloud"])
@pytest.mark.parametrize("sender", ["terminal", "kill"])
def test_a_program_that_handles_an_interrupt_ends_with_its_own_code(
    sender: str,
    engine: str,
    desk: Callable[[list[str]], Desk],  # noqa: F811
    python: Path,
    tmp_path: Path,
) -> None:
    if engine == "charliecloud":
        tool("ch-run")
    shown = desk(run_words(tmp_path, "python", "-c", SAVES, engine=engine, python=python))
    shown.until(b"ready")
    if sender == "terminal":
        shown.type(b"\x03")
    else:
        os.kill(os.tcgetpgrp(shown.master), signal.SIGINT)
    assert b"code 9>" in shown.end()
    assert b"saved\n" in kept(tmp_path)


def test_a_program_that_ignores_interrupts_is_ended_by_one(
    desk: Callable[[list[str]], Desk],  # noqa: F811
    tmp_path: Path,
) -> None:
    shown = desk(run_words(tmp_path, "sh", "-c", "trap '' INT; echo ready; exec sleep 100"))
    shown.until(b"ready")
    shown.type(b"\x03")
    assert b"code 130>" in shown.end()


def test_an_interrupt_that_a_point_handles_ends_the_sweep(
    desk: Callable[[list[str]], Desk],  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "job.toml").write_text(
        "command = ['sh', '-c', \"trap 'exit 0' INT; echo ready {x}; while :; do sleep .1; done\"]\n"
        "[sweep]\nx = ['a', 'b']\n"
    )
    words = run_words(tmp_path)[:-1]
    shown = desk([*words, str(tmp_path / "job.toml")])
    shown.until(b"ready")
    shown.type(b"\x03")
    assert b"code 130>" in shown.end()
    assert kept(tmp_path, "points/0/").count(b"ready") == 1
    assert not list(tmp_path.glob("store/runs/*/points/1/output.log"))


def test_a_repl_works_and_what_it_prints_is_kept(
    desk: Callable[[list[str]], Desk],  # noqa: F811
    python: Path,
    tmp_path: Path,
) -> None:
    shown = desk(run_words(tmp_path, "python", "-q", "-i", engine="bubblewrap", python=python))
    shown.until(b">>> ")
    shown.type(b"print('4' + '2')\n")
    shown.until(b"42")
    shown.type(b"exit(3)\n")
    assert b"code 3>" in shown.end()
    assert b"42\n" in kept(tmp_path)


@pytest.mark.parametrize(
    ("key", "ended"), [(b"x", b"key x"), (b"k", b"code 137>")], ids=["ends", "is killed"]
)
def test_modes_that_a_program_sets_through_its_output_are_the_terminals(
    key: bytes,
    ended: bytes,
    desk: Callable[[list[str]], Desk],  # noqa: F811
    tmp_path: Path,
) -> None:
    shown = desk(["env", "TERM=xterm", *run_words(tmp_path, sys.executable, "-c", CURSES)])
    before = termios.tcgetattr(shown.master)
    shown.until(b"press")
    during = termios.tcgetattr(shown.master)
    assert not during[3] & (termios.ICANON | termios.ECHO)
    assert during[1] & termios.OPOST
    shown.type(key)
    assert ended in shown.end()
    assert before[3] & termios.ICANON
    assert shown.modes_at_end[:4] == before[:4]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_terminal_is_as_it_was_when_bareboat_is_killed(
    number: signal.Signals,
    desk: Callable[[list[str]], Desk],  # noqa: F811
    tmp_path: Path,
) -> None:
    shown = desk(run_words(tmp_path, "sh", "-c", "echo ready; exec sleep 60"))
    before = termios.tcgetattr(shown.master)
    shown.until(b"ready")
    (submission,) = tmp_path.glob("store/runs/*/submission.json")
    found = re.search(r'"supervisor": *"[^"]*-(\d+)-\d+"', submission.read_text())
    assert found is not None
    os.kill(int(found[1]), number)
    assert (b"code -9>" if number == signal.SIGKILL else b"code 143>") in shown.end()
    assert shown.modes_at_end[:4] == before[:4]
