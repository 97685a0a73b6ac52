"""Pure: the time that the arms waited for a busy processor, and the step times without it.

On a machine with other work, an arm that is ready to run waits until the kernel gives it a processor. The
length of the wait is mostly chance, and most of the noise of such a study. The kernel counts the waits of
each thread, so their effect can be estimated and removed: an analysis of covariance, with the wait of each
window as covariate.

A container may cause waits, too, and what is removed with them would make it look free. So the adjusted
throughput is a secondary metric, beside the waits themselves; it is left out where the kernel schedules the
arms by different settings, for example in a cgroup with a limit, and where an arm has more threads than the
other, which then wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import UNSET

from bareboat.model import Record, Window

#: Fewer blocks, beyond one for each run, do not show how much a wait costs.
LEAST_FREEDOM = 20


def is_counted(pairs: Sequence[tuple[Record, Record]]) -> bool:
    """Whether all windows have their processor time and their waits."""
    windows = (window for pair in pairs for record in pair for window in record.windows)
    return all(
        window.cpu_s is not UNSET and window.wait_s is not UNSET and window.cpu_s > 0 for window in windows
    )


def may_be_removed(pairs: Sequence[tuple[Record, Record]]) -> bool:
    """Whether the kernel schedules both arms by the same settings, and as many threads, in every run."""
    return all(
        first.scheduled_as is not UNSET
        and first.scheduled_as == second.scheduled_as
        and _most_threads(first) == _most_threads(second)
        for first, second in pairs
    )


def _most_threads(record: Record) -> int:
    return max((window.threads for window in record.windows if window.threads is not UNSET), default=0)


def cpu_step_s(windows: Sequence[Window], samples: float) -> float:
    """The processor time of all ranks in a step of these windows, on average; per sample."""
    steps = sum(len(window.step_s[window.settle :] or window.step_s) for window in windows)
    return _cpu_s(windows) / steps / samples


def factor(windows: Sequence[Window], _samples: float) -> float:
    """How much longer the threads took in these windows because they waited: 1 + waits / processor time."""
    waits_s = math.fsum(window.wait_s for window in windows if window.wait_s is not UNSET)
    return 1 + waits_s / _cpu_s(windows)


def _cpu_s(windows: Sequence[Window]) -> float:
    return math.fsum(window.cpu_s for window in windows if window.cpu_s is not UNSET)


def slowdown(window: Window) -> float:
    """The log of how much longer the threads took because they waited: log(1 + wait / processor time)."""
    cpu_s, wait_s = window.cpu_s, window.wait_s
    assert cpu_s is not UNSET
    assert wait_s is not UNSET
    return math.log1p(wait_s / cpu_s)


def slope(times: Sequence[Sequence[float]], waits: Sequence[Sequence[float]]) -> float:
    """What a wait costs: the change of a block's log ratio of step times with the difference of its two
    slowdowns, by least squares within the runs; at least 0.

    `times[i]` and `waits[i]`: of the blocks of run i. Runs are not compared with each other, so a difference
    of the arms does not change the slope. 0, which removes nothing, from too few blocks.
    """
    if sum(len(run) - 1 for run in times) < LEAST_FREEDOM:
        return 0.0
    centred = [
        (time - math.fsum(run) / len(run), wait - math.fsum(of) / len(of))
        for run, of in zip(times, waits, strict=True)
        for time, wait in zip(run, of, strict=True)
    ]
    square = math.fsum(wait * wait for _, wait in centred)
    return max(0.0, math.fsum(time * wait for time, wait in centred) / square) if square > 0 else 0.0


def without(step_s: float, window: Window, slope: float, typical: float) -> float:
    """A window's mean step time, had its threads waited as in a typical window of the study."""
    return step_s * math.exp(-slope * (slowdown(window) - typical))
