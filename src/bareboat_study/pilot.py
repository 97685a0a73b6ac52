"""Pure: how long the windows of a study must be, from those of its warm-up.

While an arm waits, buffers between its processes and the work of the kernel and of devices may go on for a
moment, and caches get cold. So the first steps of a window may be faster or slower than those of a training
that is alone, and short windows measure this transient. The warm-up has windows of several lengths; the study
gets the shortest of which the first and the last quarter take equally long.
"""

from __future__ import annotations

import math
import statistics as descriptive
from collections.abc import Sequence

from bareboat.model import ProveRequest

#: Steps of the very first window, whose times determine the length of the others.
PROBE_STEPS = 20
#: A window has four quarters.
LEAST_STEPS = 4
#: The lengths that a warm-up tries: each is twice the one before, with so many blocks.
LENGTHS, BLOCKS = 6, 4
#: Of a mean over a few windows, in standard errors: less is noise.
_VISIBLE = 3.0
#: With longer windows a run would have too few.
_LEAST_BLOCKS = 6


def shortest(prove: ProveRequest, seconds: Sequence[float]) -> int:
    """The steps of the shortest windows, from the seconds of single steps."""
    return max(LEAST_STEPS, round(prove.window_s / max(descriptive.median(seconds), 1e-9)))


def transient(window: Sequence[float]) -> float | None:
    """log(mean step of the first quarter / of the last one); None for a window without quarters.

    Where the last step waited for a device to finish its queue, that is work of the first steps, which ran
    ahead of it.
    """
    quarter = len(window) // 4
    if not quarter:
        return None
    usual = descriptive.median(window)
    drain = window[-1] - usual if window[-1] > 2 * usual else 0.0
    first, last = math.fsum((*window[:quarter], drain)), math.fsum((*window[-quarter:], -drain))
    return math.log(first / last) if first > 0 < last else None


def chosen(arms: Sequence[Sequence[Sequence[float]]], margin: float, *, least: int, total: int) -> int:
    """The steps of the study's windows. `arms`: the step times of each window of each arm's
    warm-up; `total`: the steps that all arms do after the first."""
    most = max(1, total // _LEAST_BLOCKS)
    steps = least
    while steps * 2 <= most and any(_is_transient(arm, steps, margin) for arm in arms):
        steps *= 2
    return min(steps, most)


def _is_transient(windows: Sequence[Sequence[float]], steps: int, margin: float) -> bool:
    """Whether windows of so many steps visibly differ between their quarters; those that were hardly tried
    do not."""
    found = [transient(window) for window in windows if len(window) == steps]
    known = [each for each in found if each is not None]
    if len(known) < BLOCKS:
        return False
    error = descriptive.stdev(known) / math.sqrt(len(known))
    return abs(descriptive.fmean(known)) > max(allowed(margin), _VISIBLE * error)


def allowed(margin: float) -> float:
    """The largest difference of the quarters: a third of the margin."""
    return math.log1p(margin) / 3
