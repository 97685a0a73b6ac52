"""Pure: what follows from a run's windows: the total time of its steps, which decides, and what makes it
differ from the time of typical windows."""

from __future__ import annotations

import math
import statistics as descriptive
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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


def settled_step_s(window: Window) -> float:
    """Mean seconds of a window's steps, those to settle left out where others are left."""
    kept = window.step_s[window.settle :] or window.step_s
    return math.fsum(kept) / len(kept)


def shared(pair: Pair) -> list[tuple[Window, Window]]:
    """The windows of the blocks that both arms completed. Raises UsageError without any."""
    first, second = ({window.block: window for window in record.windows} for record in pair)
    blocks = sorted(first.keys() & second.keys())
    if not blocks:
        raise UsageError(
            "a run without a complete block has no effect to measure", remedy="train for more steps"
        )
    return [(first[block], second[block]) for block in blocks]


def block_log_ratios(pair: Pair, seconds: Callable[[Window], float] = step_s) -> list[float]:
    """log(throughput of contender / baseline) for each block of a run that both arms completed. `seconds`: of
    a window's step."""
    samples = math.log(_samples(pair[1]) / _samples(pair[0]))
    return [math.log(seconds(first) / seconds(second)) + samples for first, second in shared(pair)]


def total_speeds(pair: Pair, seconds: Callable[[Window], float] = step_s) -> tuple[float, float]:
    """The throughput of both arms over the shared windows of a run: samples over the sum of the times of all
    steps. `seconds`: of a window's step, on average."""
    found = shared(pair)
    first, second = (
        _samples(record)
        * sum(len(windows[arm].step_s) for windows in found)
        / math.fsum(seconds(windows[arm]) * len(windows[arm].step_s) for windows in found)
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


@dataclass(frozen=True, slots=True)
class SlowWindows:
    """The slow windows of an arm. `share`: of the time of all windows, what these took beyond the medians of
    their runs. `slowest`: run, block, and times the median."""

    count: int
    windows: int
    share: float
    slowest: tuple[tuple[int, int, float], ...]


def slow_windows(records: Sequence[Record]) -> SlowWindows:
    """The slow windows of one arm in all of its runs."""
    found: list[tuple[int, int, float]] = []
    total = extra = 0.0
    for record in records:
        seconds = [step_s(window) for window in record.windows]
        median = descriptive.median(seconds) if seconds else 0.0
        total += math.fsum(seconds)
        for window, took in zip(record.windows, seconds, strict=True):
            if took > SLOW * median:
                found.append((record.run, window.block, took / median))
                extra += took - median
    return SlowWindows(
        count=len(found),
        windows=sum(len(record.windows) for record in records),
        share=extra / total if total else 0.0,
        slowest=tuple(sorted(found, key=lambda each: -each[2])[:_MOST_NAMED]),
    )


def slow_text(arms: Sequence[str], pairs: Sequence[Pair]) -> str:
    """Which windows were slow, in words."""
    parts = []
    for number, arm in enumerate(arms):
        found = slow_windows([pair[number] for pair in pairs])
        text = f"{found.count} of {found.windows} windows of {arm}"
        if found.count:
            named = ", ".join(f"run {run} block {block}: {times:.1f}x" for run, block, times in found.slowest)
            text += f" with {found.share:.1%} of its time ({named})"
        parts.append(text)
    return f"windows above {SLOW:g} times their run's median: {'; '.join(parts)}"


def settling_shares(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Of each arm's total time, what its settling steps took beyond the mean of its other steps: the part
    that taking turns adds."""
    shares = []
    for arm in (0, 1):
        windows = [window for pair in pairs for window in pair[arm].windows]
        total = math.fsum(math.fsum(window.step_s) for window in windows)
        settled = math.fsum(settled_step_s(window) * len(window.step_s) for window in windows)
        shares.append(1 - settled / total)
    return shares[0], shares[1]


def second_is_slower(pairs: Sequence[Pair]) -> Iterator[tuple[bool, float]]:
    """Of every block: whether the contender's window came second, and the log ratio of the step times,
    contender over baseline."""
    for pair in pairs:
        for first, second in shared(pair):
            yield second.began_s > first.began_s, math.log(step_s(second) / step_s(first))
