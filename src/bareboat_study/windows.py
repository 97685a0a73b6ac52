"""Pure: what follows from a run's windows: the total time of its steps, which decides, and what makes it
differ from the time of typical windows."""

from __future__ import annotations

import math
import statistics as descriptive
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from bareboat.model import Record, Window
from bareboat_base.errors import UsageError

#: The records of one measured run: baseline, contender, and the study's other arms.
Run = tuple[Record, ...]
#: Those of the two arms that are compared.
Pair = tuple[Record, Record]

#: A window is slow if its steps took this many times the median of its arm and run.
SLOW = 1.5
_MOST_NAMED = 3


def step_s(window: Window) -> float:
    """Mean seconds of all steps of a window."""
    return math.fsum(window.step_s) / len(window.step_s)


def shared(run: Run) -> Run:
    """The records with the windows of the blocks that all arms completed. Raises UsageError without any."""
    known = [{window.block: window for window in record.windows} for record in run]
    if not all(known):
        return run
    blocks = sorted(set.intersection(*map(set, known)))
    if not blocks:
        raise UsageError(
            "a run without a complete block has no effect to measure", remedy="train for more steps"
        )
    return tuple(
        msgspec.structs.replace(record, windows=tuple(own[block] for block in blocks))
        for record, own in zip(run, known, strict=True)
    )


def block_log_ratios(pair: Pair) -> list[float]:
    """log(throughput of contender / baseline) for each block of a run."""
    samples = math.log(_samples(pair[1]) / _samples(pair[0]))
    return [
        math.log(step_s(first) / step_s(second)) + samples
        for first, second in zip(*(record.windows for record in pair), strict=True)
    ]


def total_speeds(run: Run) -> list[float]:
    """The throughput of each arm over the windows of a run: samples over the total time of all steps."""
    return [
        _samples(record)
        * sum(len(window.step_s) for window in record.windows)
        / math.fsum(math.fsum(window.step_s) for window in record.windows)
        for record in run
    ]


def typical_speeds(run: Run) -> list[float]:
    """The throughput of each arm in typical windows: by the 20 % trimmed mean of the log ratios of its
    windows to those of all arms. What strikes fewer than a fifth of them is not in it, whatever its
    cause, so it never decides a verdict."""
    logs = [[math.log(step_s(window)) for window in record.windows] for record in run]
    middle = [descriptive.fmean(block) for block in zip(*logs, strict=True)]
    ratios = [[log - usual for log, usual in zip(own, middle, strict=True)] for own in logs]
    cut = len(middle) // 5
    kept = [sorted(range(len(own)), key=own.__getitem__)[cut : len(own) - cut] for own in ratios]
    # Of the same blocks for all arms, so that their quotients are those of the trimmed means.
    usual = math.fsum(middle[block] for block in kept[0]) / len(kept[0])
    means = [math.fsum(map(own.__getitem__, of)) / len(of) for own, of in zip(ratios, kept, strict=True)]
    return [_samples(record) / math.exp(usual + mean) for record, mean in zip(run, means, strict=True)]


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


# --------------------------------------------------------------------------------------------------
# Waits for a busy processor, which the kernel counts for each thread. Their length is mostly chance, and most
# of the noise on a machine with other work; a container may cause waits, too.


def has_waits(runs: Sequence[Run]) -> bool:
    """Whether all windows have their processor time and their waits."""
    windows = (window for run in runs for record in run for window in record.windows)
    return all(
        window.cpu_s is not UNSET and window.wait_s is not UNSET and window.cpu_s > 0 for window in windows
    )


def cpu_step_s(windows: Sequence[Window], samples: float) -> float:
    """The processor time of all ranks in a step of these windows, on average; per sample."""
    steps = sum(len(window.step_s) for window in windows)
    return _cpu_s(windows) / steps / samples


def waits_factor(windows: Sequence[Window], _samples: float) -> float:
    """How much longer the threads took in these windows because they waited: 1 + waits / processor time."""
    waits_s = math.fsum(window.wait_s for window in windows if window.wait_s is not UNSET)
    return 1 + waits_s / _cpu_s(windows)


def _cpu_s(windows: Sequence[Window]) -> float:
    return math.fsum(window.cpu_s for window in windows if window.cpu_s is not UNSET)
