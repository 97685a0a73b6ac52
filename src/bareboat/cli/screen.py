"""A terminal that shows one changing page, and the key that ends it."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence

from bareboat.cli import console

_QUIT = b"qQ"


def is_possible() -> bool:
    """Whether results go to a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Inside, the terminal shows a page of its own and passes each key on at once."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = None
    if keys is not None:
        with contextlib.suppress(termios.error):  # a terminal that is going away
            before = termios.tcgetattr(keys)
    console.open_page()
    try:
        if before is not None and keys is not None:
            tty.setcbreak(keys)
        yield
    finally:
        console.close_page()
        if before is not None and keys is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(keys, termios.TCSADRAIN, before)


def draw(lines: Sequence[str], last: str) -> None:
    """Show the first lines that there is room for, and `last` below them."""
    columns, rows = console.size()
    room = max(rows - 2, 3)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]
    console.draw_page([*lines, console.dim(last[: columns - 1])])


def quits_within(seconds: float) -> bool:
    """Wait; whether the user typed q meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
            return False
        if select.select([sys.stdin], [], [], left)[0]:
            typed = os.read(sys.stdin.fileno(), 64)
            if any(each in _QUIT for each in typed):
                return True
            if not typed:  # the terminal is gone, or Ctrl-D
                time.sleep(max(end - time.monotonic(), 0))
    return False
