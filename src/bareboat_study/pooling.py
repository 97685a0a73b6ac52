"""Pure: one ratio from the points of a study, by a random-effects model.

The points are taken as a sample of the settings in which the job may run: each has a true log ratio of its
own, normally distributed around their mean. The pooled ratio is that mean; tau is its deviation between
points. Estimated by restricted maximum likelihood (REML), with the interval of Hartung and Knapp.

Sources: Viechtbauer (2005), Journal of Educational and Behavioral Statistics 30, 261-293 (REML);
Knapp and Hartung (2003), Statistics in Medicine 22, 2693-2710 (interval);
Röver, Knapp and Friede (2015), BMC Medical Research Methodology 15, 99 (its floor);
Higgins, Thompson and Spiegelhalter (2009), Journal of the Royal Statistical Society A 172, 137-159
(prediction); Higgins and Thompson (2002), Statistics in Medicine 21, 1539-1558 (I2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from bareboat_base.errors import UsageError
from bareboat_study.statistics import Verdict, difference_p, equivalence_p, exp
from bareboat_study.t_statistic import quantile

Floats = NDArray[np.float64]

#: Fewer get no verdict: their deviation is hardly known.
LEAST_POINTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The pooled ratio of `points` points with its interval, and their heterogeneity.

    `tau`: the deviation of the true log ratios between points; 0.01 is about 1 %. `i2`: the share of the
    variance of the points' ratios that is not noise of their runs, from 0 to 1, by the data alone. `q` and
    `q_p`: Cochran's test of equal ratios. `next_low`, `next_high`: the prediction interval, which holds the
    true ratio of another such point. `equivalence_p` and `difference_p` as those of a `Comparison`; None, as
    `margin`, for a secondary metric, which is not tested.
    """

    points: int
    ratio: float
    low: float
    high: float
    next_low: float
    next_high: float
    confidence: float
    margin: float | None
    tau: float
    i2: float
    q: float
    q_p: float
    equivalence_p: float | None
    difference_p: float | None

    @property
    def verdict(self) -> Verdict | None:
        """None for a secondary metric, and for too few points, whose deviation is hardly known."""
        if self.equivalence_p is None or self.difference_p is None or self.points < LEAST_POINTS:
            return None
        alpha = 1 - self.confidence
        if self.equivalence_p <= alpha:
            return Verdict.EQUIVALENT
        return Verdict.DIFFERENT if self.difference_p <= alpha else Verdict.UNDECIDED


def pool(
    effects: Sequence[float],
    errors: Sequence[float],
    *,
    margin: float | None,
    confidence: float,
    between: float = 0.0,
) -> Pooled:
    """Pool log ratios with their standard errors. `margin`: None for a secondary metric. `between`: tau is at
    least this.

    An error of 0, from runs of equal length, counts as the smallest positive one of the others. Raises
    UsageError for fewer than two points, different numbers of effects and errors, or values that are not
    finite.
    """
    if len(effects) != len(errors) or len(effects) < 2:
        raise UsageError(
            f"{len(effects)} points with {len(errors)} errors cannot be pooled",
            remedy="pool at least two points, each with the standard error of its log ratio",
        )
    if not all(map(math.isfinite, (*effects, *errors))) or min(errors) < 0:
        raise UsageError("a log ratio or its error is not a finite number", remedy="check the raw records")
    y = np.asarray(effects, dtype=np.float64)
    variances = np.asarray(errors, dtype=np.float64) ** 2
    positive = variances[variances > 0]
    v = np.maximum(variances, float(np.min(positive)) if positive.size else 1e-20)
    freedom = len(y) - 1

    estimated = _reml(y, v)
    tau2 = max(estimated, between**2)
    mean, error = _hartung_knapp(y, v + tau2)
    half = quantile(0.5 + confidence / 2, freedom) * error
    q = float(np.sum((y - np.average(y, weights=1 / v)) ** 2 / v))
    # Of a new point: its own deviation, and the error of the mean (Higgins et al. 2009).
    spread = quantile(0.5 + confidence / 2, max(1, len(y) - 2)) * math.hypot(math.sqrt(tau2), error)
    bound = None if margin is None else math.log1p(margin)
    return Pooled(
        points=len(y),
        ratio=math.exp(mean),
        low=exp(mean - half),
        high=exp(mean + half),
        next_low=exp(mean - spread),
        next_high=exp(mean + spread),
        confidence=confidence,
        margin=margin,
        tau=math.sqrt(tau2),
        i2=estimated / (estimated + _typical(v)),
        q=q,
        q_p=float(special.chdtrc(freedom, q)),
        equivalence_p=None if bound is None else equivalence_p(mean, error, freedom, bound=bound),
        difference_p=None if margin is None else difference_p(mean, error, freedom),
    )


def common_errors(deviations: Sequence[float], runs: Sequence[int]) -> list[float]:
    """The standard error of each point's log ratio, from the noise of the runs at all points together.

    `deviations`: of the log ratios of each point's runs. Reason: with a few runs a point's own deviation is
    so uncertain that points that agree by chance get most of the weight, and the interval of the pooled ratio
    becomes too narrow. `bench/pooled.py` measures it.
    """
    freedom = sum(count - 1 for count in runs)
    squares = sum((count - 1) * each**2 for count, each in zip(runs, deviations, strict=True))
    noise = math.sqrt(squares / freedom)
    return [noise / math.sqrt(count) for count in runs]


def _hartung_knapp(y: Floats, total: Floats) -> tuple[float, float]:
    """The weighted mean, and its error from the observed scatter, at least that of the model: points that
    agree by chance make no interval narrower than their errors allow (Röver et al. 2015)."""
    w = 1 / total
    mean = float(np.average(y, weights=w))
    spread = float(np.sum(w * (y - mean) ** 2)) / (len(y) - 1)
    return mean, math.sqrt(max(1.0, spread) / float(np.sum(w)))


def _reml(y: Floats, v: Floats) -> float:
    """The variance between points that maximizes the restricted likelihood; not negative."""
    scale = float(np.mean(v)) + float(np.var(y, ddof=1))

    def loss(tau2: Any) -> float:
        w = 1 / (v + tau2)
        total = float(np.sum(w))
        mean = float(np.sum(w * y)) / total
        return 0.5 * float(np.sum(np.log(v + tau2)) + math.log(total) + np.sum(w * (y - mean) ** 2))

    # The likelihood may have several maxima; a grid finds the highest one's neighbourhood.
    grid = [0.0, *(scale * 10.0**power for power in np.linspace(-6, 1, 57))]
    values = [loss(tau2) for tau2 in grid]
    best = min(range(len(grid)), key=values.__getitem__)
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    # In units of the scale, because the tolerance is absolute.
    found = optimize.minimize_scalar(
        lambda share: loss(share * scale), bounds=(low / scale, high / scale), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    tau2 = float(found.x) * scale
    return tau2 if loss(tau2) < values[0] else 0.0


def _typical(v: Floats) -> float:
    """The typical variance within points, after Higgins and Thompson."""
    w = 1 / v
    return float((len(v) - 1) * np.sum(w) / (np.sum(w) ** 2 - np.sum(w**2)))
