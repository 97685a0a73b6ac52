"""Pure: how an arm's speed grows with its workers: speed-up, efficiency, and two laws fitted to them.

A speed is work per time: a metric of which more is better, or one over a time. Its logarithm is compared, as
in the rest of a study. Runs with different numbers of workers are independent, so a speed-up has the interval
of Welch.

Sources: Amdahl (1967), AFIPS Conference Proceedings 30, 483-485; Gunther (2007), Guerrilla Capacity
Planning, chapter 4 (universal scalability law); Welch (1947), Biometrika 34, 28-35.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from bareboat_base.errors import UsageError
from bareboat_study.statistics import estimate_change

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A law fitted to the speeds of all runs. `serial`: the share of the work that is not parallel (Amdahl),
    or contention (USL); `coherency`: the cost of keeping the workers in agreement (USL). `residuals`: at
    each number of workers the mean speed over the law's, less 1. `peak`: the number of workers beyond which
    more of them are slower; None: there is none."""

    name: str
    serial: float
    coherency: float
    residuals: tuple[float, ...]
    peak: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Speed-ups in the order of their workers, and the laws for which there are enough of them."""

    speed_ups: tuple[SpeedUp, ...]
    laws: tuple[Law, ...]


def scale(speeds: Mapping[float, Sequence[float]], *, confidence: float) -> Scaling:
    """Analyse speeds: workers -> the speed of each run.

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
    ups = tuple(_speed_up(logs, least, n, confidence) for n in logs)
    laws = []
    # One number more than the law has parameters: otherwise it fits whatever was measured.
    if len(logs) >= 3:
        laws.append(_fit(logs, coherent=True))
    if len(logs) >= 4:
        laws.append(_fit(logs, coherent=False))
    return Scaling(speed_ups=ups, laws=tuple(laws))


def _speed_up(logs: Mapping[float, Floats], least: float, n: float, confidence: float) -> SpeedUp:
    base, own = logs[least], logs[n]
    ideal = n / least
    if n == least:
        return SpeedUp(
            workers=n, runs=len(own), speed_up=1.0, low=1.0, high=1.0,
            efficiency=1.0, efficiency_low=1.0, efficiency_high=1.0,
        )  # fmt: skip
    found = estimate_change(base.tolist(), own.tolist(), confidence=confidence)
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


def law_speed(n: float, serial: float, coherency: float) -> float:
    """The speed of `n` workers over that of one: Amdahl's law where `coherency` is 0, else the USL."""
    return n / (1 + serial * (n - 1) + coherency * n * (n - 1))


def _fit(logs: Mapping[float, Floats], *, coherent: bool) -> Law:
    """Least squares on the logs of all runs; the speed of one worker is a parameter, too. `coherent`: the
    workers cost nothing to keep in agreement (Amdahl)."""
    n = np.concatenate([np.full(len(values), workers) for workers, values in logs.items()])
    y = np.concatenate(list(logs.values()))

    def model(p: Floats, at: Floats) -> Floats:
        coherency = 0.0 if coherent else p[2]
        law: Floats = p[0] + np.log(at) - np.log(1 + p[1] * (at - 1) + coherency * at * (at - 1))
        return law

    low = [-np.inf, 0.0] if coherent else [-np.inf, 0.0, 0.0]
    high = [np.inf, 1.0] if coherent else [np.inf, 1.0, np.inf]
    base = float(y.min() - math.log(n.max()))
    starts = [[base + 1e-3, 0.05], [base + 1e-3, 0.5]] if coherent else [
        [base + 1e-3, 0.05, 0.001], [base + 1e-3, 0.5, 0.05]
    ]  # fmt: skip
    fits = [
        optimize.least_squares(
            lambda p: model(p, n) - y, start, bounds=(low, high), xtol=1e-14, ftol=1e-14, gtol=1e-14
        )
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    serial = float(best.x[1])
    coherency = 0.0 if coherent else float(best.x[2])
    at = np.asarray(list(logs), dtype=np.float64)
    means = np.asarray([values.mean() for values in logs.values()])
    peak = math.sqrt((1 - serial) / coherency) if coherency > 1e-9 and serial < 1 else None
    return Law(
        name="Amdahl" if coherent else "USL",
        serial=serial,
        coherency=coherency,
        residuals=tuple(float(each) for each in np.expm1(means - model(best.x, at))),
        peak=peak,
    )
