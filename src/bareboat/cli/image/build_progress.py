"""The progress of a build: one line for each step that is over, and on a terminal the last line that a step
printed."""

from __future__ import annotations

import threading

from bareboat.cli import console
from bareboat_base.printable import one_line

_WIDTH = 79


class BuildProgress:
    """Satisfies `images.build.options.Reporter`. `shows`: the steps; `verbose`: all output of RUN."""

    def __init__(self, progress: console.Progress, *, shows: bool, verbose: bool) -> None:
        self._progress = progress
        self._shows = shows
        self._verbose = verbose
        self._lock = threading.Lock()
        self._open: dict[str, bytes] = {}

    def begin(self, title: str, text: str) -> None:
        with self._lock:
            self._open[title] = b""
            if self._shows and console.is_live():
                self._progress.say(f"{title}  {one_line(text)}")

    def output(self, title: str, data: bytes) -> None:
        with self._lock:
            *lines, rest = (self._open.get(title, b"") + data).split(b"\n")
            self._open[title] = rest[-4096:]
            texts = [line.rpartition(b"\r")[2].decode(errors="replace") for line in lines]
            if self._verbose:
                for text in texts:
                    console.note(f"{title}  {text}")
            elif self._shows and console.is_live() and (last := [text for text in texts if text.strip()]):
                self._progress.say(f"{title}  {one_line(last[-1])}")

    def end(self, title: str, text: str, wall_s: float, *, cached: bool) -> None:
        with self._lock:
            rest = self._open.pop(title, b"")
            if self._verbose and rest:
                console.note(f"{title}  {rest.decode(errors='replace')}")
            if not self._shows:
                return
            how = "cached" if cached and wall_s else "" if cached else f"{wall_s:.1f} s"
            left = _WIDTH - len(title) - len(how) - 4
            self._progress.end()
            console.note(f"{title}  {one_line(text, limit=max(left, 20)):<{max(left, 20)}}  {how}".rstrip())

    def bytes(self, what: str, done: int, total: int) -> None:
        with self._lock:
            self._progress.bytes(what, done, total)

    def warn(self, text: str) -> None:
        with self._lock:
            self._progress.end()
            self._progress.warn(text)
