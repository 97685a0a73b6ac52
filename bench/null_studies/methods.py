"""Ways to make one log ratio of each run from its windows, as a study's raw data are kept here.

Each takes the blocks of all runs and gives an effect for each run, log(throughput of contender / baseline).
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import trim_mean

from bareboat_study import waiting


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds. `step_s`: mean of its steps after those to settle; `median_s`: their median. The others are
    of the whole window, seen from outside: `cpu_s`, of the arm's processes; `delay_s`, they waited for a
    processor; `busy_s`, of all processors for anything; `steal_s`, taken by the hypervisor. `inside_`: by the
    program itself. `kept_`: by Bareboat's meter, of the steps after those to settle; 0 in studies before it
    counted them."""

    block: int
    arm: int
    began_s: float
    step_s: float
    median_s: float
    wall_s: float
    cpu_s: float
    delay_s: float
    busy_s: float
    steal_s: float
    inside_wall_s: float = 0.0
    inside_cpu_s: float = 0.0
    inside_delay_s: float = 0.0
    inside_steal_s: float = 0.0
    kept_cpu_s: float = 0.0
    kept_wait_s: float = 0.0


#: Baseline, contender.
Block = tuple[Window, Window]
Run = Sequence[Block]
Method = Callable[[Sequence[Run]], list[float]]


def logs(run: Run, value: Callable[[Window], float]) -> list[float]:
    return [math.log(value(first) / value(second)) for first, second in run]


def trimmed_mean(values: Sequence[float]) -> float:
    """Without the lowest and the highest fifth."""
    return float(trim_mean(values, 0.2))


def wall(runs: Sequence[Run]) -> list[float]:
    """As `prove`: the 20 % trimmed mean of the blocks' log ratios of step times."""
    return [trimmed_mean(logs(run, lambda window: window.step_s)) for run in runs]


def plain_mean(runs: Sequence[Run]) -> list[float]:
    return [float(np.mean(logs(run, lambda window: window.step_s))) for run in runs]


def block_median(runs: Sequence[Run]) -> list[float]:
    return [float(np.median(logs(run, lambda window: window.step_s))) for run in runs]


def step_median(runs: Sequence[Run]) -> list[float]:
    """Of the median step of each window: what strikes fewer than half of the steps is not seen."""
    return [trimmed_mean(logs(run, lambda window: window.median_s)) for run in runs]


def cpu(runs: Sequence[Run]) -> list[float]:
    """Processor time instead of time: blind to what makes the arm wait."""
    return [trimmed_mean(logs(run, lambda window: window.inside_cpu_s)) for run in runs]


def total_cpu(runs: Sequence[Run]) -> list[float]:
    return [
        math.log(sum(block[0].inside_cpu_s for block in run) / sum(block[1].inside_cpu_s for block in run))
        for run in runs
    ]


def total_wall(runs: Sequence[Run]) -> list[float]:
    """Of all windows of a run together: long windows weigh more."""
    return [
        math.log(sum(block[0].step_s for block in run) / sum(block[1].step_s for block in run))
        for run in runs
    ]


def calm_half(runs: Sequence[Run]) -> list[float]:
    """Of the half of a run's blocks in which others used least of the processors in both windows."""
    return [trimmed_mean(logs(_calmest(run, 0.5, _others), lambda window: window.step_s)) for run in runs]


def least_steal(runs: Sequence[Run]) -> list[float]:
    """Without the quarter of the blocks with most steal."""
    return [trimmed_mean(logs(_calmest(run, 0.75, _steal), lambda window: window.step_s)) for run in runs]


def least_delay(runs: Sequence[Run]) -> list[float]:
    """Of the half of a run's blocks in which the arms, both together, waited least for a processor."""
    return [trimmed_mean(logs(_calmest(run, 0.5, _delay), lambda window: window.step_s)) for run in runs]


def waits_removed(runs: Sequence[Run]) -> list[float]:
    """As `prove` now: a regression of the blocks' ratios on the difference of their slowdowns by waiting."""
    y = [logs(run, _time_s) for run in runs]
    x = [[_slowdown(first) - _slowdown(second) for first, second in run] for run in runs]
    slope = waiting.slope(y, x)
    return [
        trimmed_mean([ratio - slope * wait for ratio, wait in zip(ratios, waits, strict=True)])
        for ratios, waits in zip(y, x, strict=True)
    ]


def waits_and_steal(runs: Sequence[Run]) -> list[float]:
    """With two covariates: waits and steal."""
    return _adjusted(
        runs,
        _slowdown,
        lambda window: window.inside_steal_s / window.inside_wall_s,
    )


def waits_subtracted(runs: Sequence[Run]) -> list[float]:
    """The time of the windows less the waits."""
    return [trimmed_mean(logs(run, _unwaited)) for run in runs]


def adjusted_steal(runs: Sequence[Run]) -> list[float]:
    return _adjusted(runs, lambda window: window.steal_s / window.wall_s)


def adjusted_others(runs: Sequence[Run]) -> list[float]:
    """The same on what others used of the processors."""
    return _adjusted(runs, lambda window: (window.busy_s - window.cpu_s) / window.wall_s)


def _adjusted(runs: Sequence[Run], *covariates: Callable[[Window], float]) -> list[float]:
    """The slopes are those within the runs, where the arm does not matter; the runs' means are moved along
    them."""
    y = [np.array(logs(run, _time_s)) for run in runs]
    x = [
        np.array([[each(first) - each(second) for each in covariates] for first, second in run])
        for run in runs
    ]
    within_x = np.concatenate([each - each.mean(axis=0) for each in x])
    within_y = np.concatenate([each - each.mean() for each in y])
    slopes = np.linalg.lstsq(within_x, within_y, rcond=None)[0]
    return [trimmed_mean((ratios - shares @ slopes).tolist()) for ratios, shares in zip(y, x, strict=True)]


def _time_s(window: Window) -> float:
    """Of the steps whose waits were counted: in the older studies all steps, in the others without those to
    settle."""
    return window.step_s if window.kept_cpu_s else window.inside_wall_s


def _slowdown(window: Window) -> float:
    if window.kept_cpu_s:
        return math.log1p(window.kept_wait_s / window.kept_cpu_s)
    return math.log1p(window.inside_delay_s / window.inside_cpu_s)


def _unwaited(window: Window) -> float:
    return max(window.inside_wall_s - window.inside_delay_s, window.inside_cpu_s)


def _calmest(run: Run, share: float, noise: Callable[[Window], float]) -> list[Block]:
    order = sorted(run, key=lambda block: noise(block[0]) + noise(block[1]))
    return order[: max(1, math.ceil(share * len(order)))]


def _others(window: Window) -> float:
    return (window.busy_s - window.cpu_s) / window.wall_s


def _steal(window: Window) -> float:
    return window.steal_s / window.wall_s


def _delay(window: Window) -> float:
    return window.delay_s / window.wall_s


METHODS: dict[str, Method] = {
    "time (as before)": wall,
    "time, mean of the blocks": plain_mean,
    "time, median of the blocks": block_median,
    "time, all windows together": total_wall,
    "time, without the quarter with most steal": least_steal,
    "time, half of the blocks: others use least": calm_half,
    "time, half of the blocks: arms wait least": least_delay,
    "time, regression on steal": adjusted_steal,
    "time, regression on others' use": adjusted_others,
    "time, waits removed": waits_removed,
    "time, waits and steal removed": waits_and_steal,
    "time less waits": waits_subtracted,
    "median step of each window": step_median,
    "processor time": cpu,
    "processor time, all windows together": total_cpu,
}
