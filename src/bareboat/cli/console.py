"""Output: results to stdout, everything else to stderr, colour and live lines on a terminal.

Nothing else in `bareboat.cli` writes to either stream (a test checks this). Text may come from a registry,
an image, a job or a tool, so its control characters are made visible here. The output of the user's own jobs
is not changed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bareboat.cli.folding import folded
from bareboat_base.errors import BareboatError, PlanError, UsageError
from bareboat_base.expressions import expression
from bareboat_base.printable import excerpt, printable

if TYPE_CHECKING:
    from bareboat.model.submission import End

_BOLD, _RED, _GREEN, _YELLOW, _DIM = "1", "31", "32", "33", "2"


#: The colours of this program; harmless also in foreign text.
_COLOUR = expression(r"(\033\[(?:0|1|2|31|32|33)m)")
#: Bytes of a path or an argument that are not UTF-8.
_BYTES = expression("([\udc80-\udcff])")
#: The longest line of an error's own text: a sentence with two paths.
_LONGEST = 2000


def _shown(text: str, stream: Any) -> str:
    """The text without terminal control characters, except this program's colours."""
    if stream.isatty():
        kept = _COLOUR
    elif text.isascii():
        return printable(text)
    else:
        kept = _BYTES  # keep paths usable for the next program in a pipe
    return "".join(part if at % 2 else printable(part) for at, part in enumerate(kept.split(text)))


def open_standard_streams() -> None:
    """Open closed standard descriptors as /dev/null, so that no other file gets their numbers and receives
    terminal output.

    Input is empty and notes are dropped, but a lost result is an error: descriptor 1 is opened read-only.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # the lowest free number, since those before it are open
            os.open(os.devnull, flags)
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (as long as the process)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def discard(stream: Any) -> None:
    """Discard all further output to the stream, also at interpreter exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


#: Whether a note or an error could not be written.
_lost = False


def exit_code(code: int) -> int:
    """The process's exit code: not 0 when output was lost."""
    return code or int(_lost)


def _write(text: str, stream: Any) -> None:
    _print(_shown(text, stream), stream)


def _print(text: str, stream: Any) -> None:
    _clear_line()
    with _writing(stream):
        print(text, file=stream, flush=True)


def result_bytes(data: bytes) -> None:
    """Print a part of a result unchanged."""
    _clear_line()
    with _writing(sys.stdout):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _writing(stream: Any) -> Iterator[None]:
    """Raise BareboatError when a result cannot be written; notes do not stop the work."""
    global _lost
    try:
        yield
    except OSError as error:
        is_broken_pipe = isinstance(error, BrokenPipeError)
        if is_broken_pipe and stream is not sys.stderr:
            raise
        discard(stream)
        if stream is sys.stderr:
            _lost = not is_broken_pipe  # the reader closed the pipe
            return
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise BareboatError(
            f"cannot write to standard output: {reason}",
            remedy="write to a file on a disk with free space: bareboat … > FILE",
        ) from None


def paint(text: str, code: str, stream: Any = None) -> str:
    """Colour the text on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    stream = sys.stdout if stream is None else stream
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\033[{code}m{text}\033[0m"


def bold(text: str) -> str:
    return paint(text, _BOLD)


def mark(works: bool | None) -> str:
    if works is None:
        return paint("?  ", _YELLOW)
    return paint("yes", _GREEN) if works else paint("no ", _YELLOW)


def dim(text: str) -> str:
    return paint(text, _DIM)


def result(text: str) -> None:
    """Print a result."""
    _write(text, sys.stdout)


def result_json(value: Any) -> None:
    from bareboat_base import codec

    _write_json(codec.to_pretty_json(value))


def json_line(value: Any) -> None:
    """Print one of a stream of JSON results on a line of its own."""
    import json

    _write_json(json.dumps(value))


def _write_json(text: str) -> None:
    from bareboat_base.printable import in_json

    _print(in_json(text), sys.stdout)


def script(text: str) -> None:
    """Print a script unchanged to a file, with control characters visible on a terminal."""
    if sys.stdout.isatty():
        _write(text, sys.stdout)
    else:
        _print(text, sys.stdout)


#: Whether notes are left out (--quiet).
_quiet = False


def set_quiet(is_quiet: bool) -> None:
    """Leave out all notes from now on, or show them."""
    global _quiet
    _quiet = is_quiet


def note(text: str) -> None:
    """Print a note to stderr, unless notes are left out."""
    if not _quiet:
        warn(text)


def warn(text: str) -> None:
    """Print to stderr what is shown with --quiet, too; on a terminal, folded between words."""
    _write(folded(text, _width() if sys.stderr.isatty() else None), sys.stderr)


def is_interactive() -> bool:
    """Whether the user can be prompted."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def is_live() -> bool:
    """Whether notes go to a terminal, where progress is one changing line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def says_yes(question: str) -> bool:
    """Ask on the terminal. Only "yes" or "y" agrees."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def show_error(error: BareboatError) -> None:
    width = _width() if sys.stderr.isatty() else None
    _write("\n".join(error_lines(error, width)), sys.stderr)


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:  # the terminal is gone
        return 80


def width() -> int | None:
    """The width of the terminal that results go to; None for a pipe or a file."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def error_lines(error: BareboatError, width: int | None) -> list[str]:
    """What happened, where, and what to do. Text wraps to a terminal's `width`; elsewhere lines stay whole.
    Commands never wrap, since they are copied."""
    name = "bareboat: "
    message = " ".join(excerpt(_readable(error.message), limit=_LONGEST))
    lines = folded(name + message, width).split("\n")
    lines[0] = paint(name, _RED, sys.stderr) + lines[0].removeprefix(name)
    # A context may be a tool's whole output. In errors of jobs and plans it holds commands.
    own = isinstance(error, UsageError | PlanError)
    for line in excerpt(error.context, limit=_LONGEST if own else 200):
        lines += folded("  " + line, width).split("\n")
    for number, line in enumerate(excerpt(_readable(error.remedy), limit=_LONGEST)):
        lines.append(line if number else f"  try: {line}")
    return lines


def _readable(text: str) -> str:
    """The text without the middle of words that would fill the screen; bytes that are not UTF-8 as bytes, and
    not as Python keeps or shows them."""
    text = text.encode("utf-8", "backslashreplace").decode()
    text = re.sub(r"\\udc([89a-f][0-9a-f])", r"\\x\1", text)
    return re.sub(r"\S{401,}", lambda found: f"{found[0][:100]}…{found[0][-50:]}", text)


def log_to_stderr() -> None:
    """Send log messages to stderr like notes."""
    logging.basicConfig(handlers=[_Handler()], level=logging.WARNING, format="bareboat: %(message)s")


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(self.format(record))


#: Whether the terminal's last line is one of progress.
_has_progress_line = False
_CLEAR_LINE = "\r\033[K"


def _clear_line() -> None:
    """Clear a line of progress, so that a message does not begin at its end."""
    global _has_progress_line
    if _has_progress_line:
        _has_progress_line = False
        _live(_CLEAR_LINE)


def _live(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal is gone; the work goes on
        sys.stderr.write(text)
        sys.stderr.flush()


#: A rate of less is noise.
_LEAST_S = 1.0


class Progress:
    """One changing line on a terminal; elsewhere a line for each new subject. A `session.Reporter`."""

    def __init__(self, *, quiet: bool, steps: bool = True) -> None:
        """`quiet`: neither notes nor steps; `steps`: whether to show the steps."""
        self._quiet = quiet
        self._steps = steps and not quiet
        self._live = is_live()
        self._began = time.monotonic()
        self._last = ""
        self._last_at = 0.0
        self._step = ""
        self._since = self._done = 0.0  # when the step was first shown, and how much of it was done then

    def say(self, text: str) -> None:
        """Show the current step as `subject: detail`. A log gets only new subjects."""
        if not self._steps:
            return
        subject = text.partition(":")[0]
        self._show(text, subject, subject)

    def say_state(self, text: str) -> None:
        """Show the state of a run with the scheduler's own words, which may hold colons. A log gets what is
        new: an estimate that only changes its numbers is not."""
        if self._steps:
            self._show(text, text, re.sub(r"\d+", "0", text))

    def _show(self, text: str, for_log: str, subject: str) -> None:
        if self._live:
            self._draw(f"[{self._elapsed()}] {text}")
        elif subject != self._last:
            self._last = subject
            note(f"[{self._elapsed()}] {for_log}")

    def bytes(self, what: str, done: int, total: int) -> None:
        """Show the progress in bytes, with the rate and an estimate of the end on a terminal."""
        if not total:
            self.say(what)
            return
        now = time.monotonic()
        if what != self._step or done < self._done:
            self._step, self._since, self._done = what, now, done
        seconds, left_s = now - self._since, None
        more = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        if seconds >= _LEAST_S and (rate := (done - self._done) / seconds):
            more, left_s = f"{more}  {rate / 1e6:,.0f} MB/s", (total - done) / rate
        self.share(what, done / total, more=more, left_s=left_s)

    def share(self, what: str, share: float, *, more: str = "", left_s: float | None = None) -> None:
        """Show how much of a step is done. A log gets the step alone."""
        if not self._live:
            self.say(what)
        elif self._steps:
            left = "" if left_s is None else f"{_clock(left_s)} left"
            percent = f"{min(max(share, 0.0), 1.0):4.0%}"
            self._draw("  ".join(filter(None, (f"[{self._elapsed()}] {percent}", what, more, left))))

    def _draw(self, text: str) -> None:
        global _has_progress_line
        if time.monotonic() - self._last_at > 0.05:
            self._last_at = time.monotonic()
            _has_progress_line = True
            line, most = printable(text).replace("\n", " "), _width() - 1
            _live(_CLEAR_LINE + (line if len(line) <= most else f"{line[: most - 1]}…"))

    def end(self) -> None:
        _clear_line()

    def note(self, text: str) -> None:
        if not self._quiet:
            note(text)

    def warn(self, text: str) -> None:
        warn(text)

    def _elapsed(self) -> str:
        return _clock(time.monotonic() - self._began)


def _clock(seconds: float) -> str:
    """M:SS, from an hour on H:MM:SS."""
    whole = max(int(seconds), 0)
    hours = f"{whole // 3600}:{whole // 60 % 60:02d}" if whole >= 3600 else f"{whole // 60}"
    return f"{hours}:{whole % 60:02d}"


#: A column that is folded keeps at least this width.
_LEAST_COLUMN = 12


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Rows in columns, the first row bold; columns numbered in `right` are right-aligned. On a terminal that
    is too narrow, the widest of the others are folded."""
    rows = [[_shown(text, sys.stdout).replace("\n", " ") for text in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    most = width()
    left = [column for column in range(len(widths)) if column not in right]
    while most is not None and sum(widths) + 2 * (len(widths) - 1) > most and left:
        widest = max(left, key=lambda column: widths[column])
        if widths[widest] <= _LEAST_COLUMN:
            break
        widths[widest] -= 1
    lines = []
    for number, row in enumerate(rows):
        cells = [_folded(text, size) for text, size in zip(row, widths, strict=True)]
        for at in range(max(map(len, cells))):
            parts = [cell[at] if at < len(cell) else "" for cell in cells]
            placed = [
                text.rjust(size) if column in right else text.ljust(size)
                for column, (text, size) in enumerate(zip(parts, widths, strict=True))
            ]
            line = "  ".join(placed).rstrip()
            lines.append(line if number else bold(line))
    return "\n".join(lines)


def _folded(text: str, size: int) -> list[str]:
    """The text in lines of this width."""
    if len(text) <= size:
        return [text]
    import textwrap

    return textwrap.wrap(text, size, break_on_hyphens=False) or [text]


def end_lines(end: End | None, *, otherwise: str = "", indentation: str = "  ") -> list[str]:
    """Why a run failed, and the command or key that addresses it. `otherwise`: for a run without an end."""
    if end is None:
        return [indentation + otherwise] if otherwise else []
    remedy = [f"{indentation}try: {end.remedy}"] if end.remedy else []
    return [f"{indentation}{end.cause.value}: {end.text}", *remedy]


def note_end(end: End | None, *, otherwise: str = "") -> None:
    """Print the lines to stderr."""
    for line in end_lines(end, otherwise=otherwise):
        note(line)
