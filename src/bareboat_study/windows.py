"""Pure: what follows from a run's windows: the total time of its steps, which decides, and what makes it
differ from the time of typical windows."""

from __future__ import annotations

import math
import statistics as descriptive
from collections.abc import Sequence

from bareboat.model import Record, Window
from bareboat_base.errors import UsageError
from bareboat_study.statistics import kept_blocks

#: The records of one measured run, baseline first.
Pair = tuple[Record, Record]

#: A window is slow if its steps took this many times the median of its arm and run.
SLOW = 1.5
_MOST_NAMED = 3


def step_s(window: Window) -> float:
    """Mean seconds of all steps of a window."""
    return math.fsum(window.step_s) / len(window.step_s)


def shared(pair: Pair) -> list[tuple[Window, Window]]:
    """The windows of the blocks that both arms completed. Raises UsageError without any."""
    first, second = ({window.block: window for window in record.windows} for record in pair)
    blocks = sorted(first.keys() & second.keys())
    if not blocks:
        raise UsageError(
            "a run without a complete block has no effect to measure", remedy="train for more steps"
        )
    return [(first[block], second[block]) for block in blocks]


def block_log_ratios(pair: Pair) -> list[float]:
    """log(throughput of contender / baseline) for each block of a run that both arms completed."""
    samples = math.log(_samples(pair[1]) / _samples(pair[0]))
    return [math.log(step_s(first) / step_s(second)) + samples for first, second in shared(pair)]


def total_speeds(pair: Pair) -> tuple[float, float]:
    """The throughput of both arms over the shared windows of a run: samples over the sum of the times of all
    steps."""
    found = shared(pair)
    first, second = (
        _samples(record)
        * sum(len(windows[arm].step_s) for windows in found)
        / math.fsum(math.fsum(windows[arm].step_s) for windows in found)
        for arm, record in enumerate(pair)
    )
    return first, second


def typical_speeds(pair: Pair) -> tuple[float, float]:
    """The throughput of both arms in typical windows: the geometric means over the blocks that the trimmed
    mean of their log ratios has."""
    found = shared(pair)
    kept = [found[place] for place in kept_blocks(block_log_ratios(pair))]
    first, second = (
        _samples(record) / math.exp(math.fsum(math.log(step_s(windows[arm])) for windows in kept) / len(kept))
        for arm, record in enumerate(pair)
    )
    return first, second


def _samples(record: Record) -> float:
    return record.samples_per_step or 1.0


def slow_text(arms: Sequence[str], pairs: Sequence[Pair]) -> str:
    """Which windows were slow, in words, with the share of the arm's time that they took beyond the medians
    of their runs."""
    parts = []
    for number, arm in enumerate(arms):
        found: list[tuple[float, str]] = []
        windows, total, extra = 0, 0.0, 0.0
        for record in (pair[number] for pair in pairs):
            seconds = [step_s(window) for window in record.windows]
            median = descriptive.median(seconds) if seconds else 0.0
            windows, total = windows + len(seconds), total + math.fsum(seconds)
            for window, took in zip(record.windows, seconds, strict=True):
                if took > SLOW * median:
                    times = took / median
                    found.append((times, f"run {record.run} block {window.block}: {times:.1f}x"))
                    extra += took - median
        text = f"{len(found)} of {windows} windows of {arm}"
        if found:
            slowest = sorted(found, key=lambda each: -each[0])[:_MOST_NAMED]
            text += f" with {extra / total:.1%} of its time ({', '.join(name for _, name in slowest)})"
        parts.append(text)
    return f"windows above {SLOW:g} times their run's median: {'; '.join(parts)}"
