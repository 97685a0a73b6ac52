"""The end of the command line's process, which skips the interpreter's cleanup."""

import subprocess
import sys

import pytest

AT_EXIT = 'atexit.register(print, "registered")'
THREAD = 'threading.Timer(0.1, print, ["thread"]).start()'


@pytest.mark.parametrize(("before", "printed"), [(AT_EXIT, "registered"), (THREAD, "thread")])
def test_the_process_ends_after_what_was_to_be_done(before: str, printed: str) -> None:
    """Output in a buffer is written, functions for the exit are called, and threads end."""
    text = "import atexit, sys, threading; from bareboat.cli import main;"
    ended = subprocess.run(
        [sys.executable, "-c", f"{text} {before}; sys.stdout.write('buffer '); main._end(3)"],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (3, f"buffer {printed}\n")


def test_output_that_cannot_be_written_is_an_error() -> None:
    text = "import sys; from bareboat.cli import main; sys.stdout.write('lost'); main._end(0)"
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", text], stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode != 0
