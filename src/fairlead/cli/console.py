"""How Fairlead talks: results to stdout, everything else to stderr, colour and live lines on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from fairlead.errors import FairleadError

_BOLD, _RED, _GREEN, _YELLOW, _DIM = "1", "31", "32", "33", "2"


def paint(text: str, code: str, stream: Any = None) -> str:
    """The text in a colour, on a terminal that has not asked for none (https://no-color.org)."""
    stream = sys.stdout if stream is None else stream
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\033[{code}m{text}\033[0m"


def bold(text: str) -> str:
    return paint(text, _BOLD)


def mark(works: bool) -> str:
    return paint("yes", _GREEN) if works else paint("no ", _YELLOW)


def dim(text: str) -> str:
    return paint(text, _DIM)


def result(text: str) -> None:
    """A result, for the user or the next program in the pipe."""
    print(text, flush=True)


def result_json(value: Any) -> None:
    from fairlead import codec

    print(codec.to_pretty_json(value), flush=True)


def note(text: str) -> None:
    """Something worth knowing that is not the result."""
    print(text, file=sys.stderr, flush=True)


def show_error(error: FairleadError) -> None:
    print(paint("fairlead: ", _RED, sys.stderr) + error.message, file=sys.stderr)
    for line in error.context.splitlines():
        print(f"  {line}", file=sys.stderr)
    if error.remedy:
        print(f"  try: {error.remedy}", file=sys.stderr)
    sys.stderr.flush()


class Progress:
    """One line that changes on a terminal; elsewhere a line whenever the subject changes."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._began = time.monotonic()
        self._last = ""
        self._last_at = 0.0

    def say(self, text: str) -> None:
        """What is being done now. `subject: detail`, of which a log shows only new subjects."""
        if self._quiet:
            return
        if self._live:
            if time.monotonic() - self._last_at > 0.05:
                self._last_at = time.monotonic()
                width = os.get_terminal_size(sys.stderr.fileno()).columns if self._live else 80
                sys.stderr.write("\r\033[K" + f"[{self._elapsed()}] {text}"[: width - 1])
                sys.stderr.flush()
        else:
            subject = text.partition(":")[0]
            if subject != self._last:
                self._last = subject
                note(f"[{self._elapsed()}] {subject}")

    def bytes(self, what: str, done: int, total: int) -> None:
        """The progress of a capture."""
        self.say(f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if total else what)

    def end(self) -> None:
        if self._live and not self._quiet:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02d}"


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Rows in columns, the first row bold; the columns numbered in `right` are flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([bold(lines[0]), *lines[1:]])
