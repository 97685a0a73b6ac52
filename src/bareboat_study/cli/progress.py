"""The progress of a study: its runs done, and an estimate of the end from those that it measured now."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bareboat_base.expressions import expression

if TYPE_CHECKING:
    from bareboat.cli.console import Progress

_STEP = expression(r"(?:warm-up|run (?P<run>\d+) of (?P<of>\d+)): (?P<what>.*)")


class StudyProgress:
    """Shows the progress that a study reports."""

    def __init__(self, progress: Progress, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self._run = -1
        self._began = 0.0
        self._first_s, self._first_run = 0.0, 0

    def say(self, text: str) -> None:
        found = _STEP.match(text)
        if found is None:
            self._progress.say(text)
            return
        run, now = int(found["run"] or 0), self._clock()
        if self._run < 0:
            self._first_s, self._first_run = now, run
        if run != self._run:
            self._run, self._began = run, now
        measured = run - self._first_run
        if found["of"] is None or not measured:
            self._progress.say(text)
            return
        each_s = (self._began - self._first_s) / measured
        runs, here = int(found["of"]) + 1, min((now - self._began) / max(each_s, 0.001), 0.95)
        self._progress.share(
            text.partition(":")[0],
            (run + here) / runs,
            more=found["what"],
            left_s=each_s * (runs - run - here),
        )
