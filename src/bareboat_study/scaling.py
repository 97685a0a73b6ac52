"""Pure: how an arm's speed grows with its workers: speed-up and efficiency.

A speed is work per time: a metric of which more is better, or one over a time. Its logarithm is compared, as
in the rest of a study. Runs with different numbers of workers are independent, so a speed-up has the interval
of Welch (1947), Biometrika 34, 28-35.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bareboat_base.errors import UsageError
from bareboat_study.statistics import change, estimate

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """Of `workers` over the smallest number measured. `efficiency` is the speed-up per additional worker:
    1 is ideal. Intervals have the study's confidence; the smallest number has none."""

    workers: float
    runs: int
    speed_up: float
    low: float
    high: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float


def scale(speeds: Mapping[float, Sequence[float]], *, confidence: float) -> tuple[SpeedUp, ...]:
    """The speed-ups in the order of their workers. `speeds`: workers -> the speed of each run.

    Raises UsageError for fewer than two numbers of workers, fewer than two runs of one, or a speed that is
    not positive.
    """
    if len(speeds) < 2 or min(map(len, speeds.values())) < 2:
        raise UsageError(
            "scaling needs two numbers of workers, each with two runs",
            remedy='vary them under [sweep], such as "topology.ranks_per_node" = [1, 2, 4]',
        )
    if any(not (math.isfinite(v) and v > 0) for values in speeds.values() for v in values):
        raise UsageError("a speed is not a number above 0", remedy="check the raw records")
    logs = {n: np.log(np.asarray(speeds[n], dtype=np.float64)) for n in sorted(speeds)}
    least = min(logs)
    return tuple(_speed_up(logs, least, n, confidence) for n in logs)


def _speed_up(logs: Mapping[float, Floats], least: float, n: float, confidence: float) -> SpeedUp:
    base, own = logs[least], logs[n]
    ideal = n / least
    if n == least:
        return SpeedUp(
            workers=n, runs=len(own), speed_up=1.0, low=1.0, high=1.0,
            efficiency=1.0, efficiency_low=1.0, efficiency_high=1.0,
        )  # fmt: skip
    found = estimate(change(base.tolist(), own.tolist()), confidence=confidence)
    return SpeedUp(
        workers=n,
        runs=len(own),
        speed_up=found.ratio,
        low=found.low,
        high=found.high,
        efficiency=found.ratio / ideal,
        efficiency_low=found.low / ideal,
        efficiency_high=found.high / ideal,
    )
