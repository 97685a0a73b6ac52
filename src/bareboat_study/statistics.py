"""The statistics of a study. Pure: log ratios in, a verdict out.

The unit of inference is the run: a fresh pair of processes gives one log ratio, whatever the number of
windows inside it. `docs/measurement.md` explains why; `bench/verdict.py` measures the error rates.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import special

from bareboat_base.errors import UsageError
from bareboat_study import blocks, t_statistic

#: Larger numbers of runs are not suggested.
MOST_RUNS = 10_000
#: From fewer runs, whose deviation is hardly known, no number is suggested, and no equivalence follows.
LEAST_RUNS = blocks.DECIDING_REPEATS
#: At each of several points: the tails of their distributions decide, and they are less exact.
LEAST_RUNS_OF_MANY = 10
#: With fewer runs the balanced order alone keeps the starts apart: an estimate of their effect would cost too
#: much of the degrees of freedom.
_LEAST_ORDERED = 6

#: The skewness of fewer runs is hardly known, and taken as 0.
_LEAST_SKEWED = 12

#: An interval whose half-width is this many margins, with no verdict, is called too noisy.
_TOO_NOISY = 3.0

#: An interval of few runs with this half-width, as a logarithm, means nothing: from 2/3 to 1.5 times.
_WIDEST = math.log(1.5)

#: Degrees of freedom of a variance that is known.
_MANY = 1e6

# Midpoints of equally likely slices: `runs_needed` averages over the sampling of the deviation with them.
_SLICES = (np.arange(200) + 0.5) / 200
_FEW = (np.arange(20) + 0.5) / 20


class Verdict(StrEnum):
    """The verdicts of a study. A lack of evidence is never reported as equivalence, nor is the equal speed of
    a training that diverged. A study that is not complete has none."""

    EQUIVALENT = "equivalent"
    DIFFERENT = "different"
    UNDECIDED = "undecided"
    TOO_NOISY = "too noisy"
    INCOMPLETE = "incomplete"
    DIVERGED = "training diverged"


#: Those that a study without enough evidence gets.
OPEN = (Verdict.UNDECIDED, Verdict.TOO_NOISY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """contender / baseline, from one log ratio per run (the unit of inference), without a test.

    `low` and `high` bound the two-sided `confidence` interval of `ratio`, the exponential of the mean log
    ratio: the outer ends of Student's with `freedom` degrees of freedom, and of Hall's, which allows for
    `skewness`. `order`: the factor by which the
    arm that starts second has more of the metric than it would have first, with its interval in `order_low`
    and `order_high`; None where it was not estimated.
    """

    runs: int
    freedom: float
    skewness: float
    ratio: float
    low: float
    high: float
    confidence: float
    order: float | None = None
    order_low: float | None = None
    order_high: float | None = None

    @property
    def half_width(self) -> float:
        """Of the interval, as a logarithm."""
        if self.low <= 0 or math.isinf(self.high):
            return math.inf
        return (math.log(self.high) - math.log(self.low)) / 2

    @property
    def has_too_few_runs(self) -> bool:
        """Whether the runs are so few that the interval means nothing, not even which value is larger."""
        return self.runs < LEAST_RUNS and self.half_width > _WIDEST and self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Estimate):
    """An estimate with the tests of the primary metric.

    `equivalence_p` is the larger of the two one-sided p values (TOST), `difference_p` the two-sided one of
    ratio == 1. `inner_low` and `inner_high`: the interval with 1 - 2 * (1 - `confidence`), within which the
    arms are equivalent for any margin that contains it. `enough_runs`: how many runs a new study needs to
    show equivalence with a power of 80 % if the arms do not differ, with this study's deviation and what all
    of its runs have in common; None with a clear verdict, with fewer than `LEAST_RUNS` runs,
    and beyond `MOST_RUNS`.
    """

    margin: float
    equivalence_p: float
    difference_p: float
    inner_low: float
    inner_high: float
    verdict: Verdict
    enough_runs: int | None = None

    @property
    def exceeds_margin(self) -> bool:
        """Whether the whole interval lies beyond the margin."""
        return self.low > 1 + self.margin or self.high < 1 / (1 + self.margin)

    @property
    def half_widths_of_margin(self) -> float:
        """The half width of the interval relative to the margin, both as logarithms."""
        return self.half_width / math.log1p(self.margin)


@dataclass(frozen=True, slots=True)
class _Mean:
    """A mean log ratio with its standard error. `skewness`: of the mean, its third cumulant over the cube of
    the error. `order`: half the difference of the two orders, which has the error `order_error`; None where
    it is not estimated."""

    value: float
    error: float
    freedom: float
    deviation: float
    runs: int
    skewness: float = 0.0
    order: float | None = None
    order_error: float = 0.0

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Of the two-sided interval: the outer of Student's and Hall's ends."""
        ends = [
            self.value - t_statistic.quantile(p, self.freedom, skewness) * self.error
            for skewness in (0.0, self.skewness)
            for p in ((1 + confidence) / 2, (1 - confidence) / 2)
        ]
        return min(ends), max(ends)


def kept_blocks(block_log_ratios: Sequence[float]) -> list[int]:
    """The indices of the blocks of a run that its 20 % trimmed mean averages, in the order of their ratios: a
    fifth, rounded down, is excluded at each end. It estimates the ratio of typical windows; what strikes
    fewer than a fifth of them is not in it, whatever its cause, so it never decides a verdict."""
    cut = len(block_log_ratios) // 5
    order = sorted(range(len(block_log_ratios)), key=block_log_ratios.__getitem__)
    return order[cut : len(order) - cut]


def order_weights(orders: Sequence[bool] | None, runs: int) -> list[float]:
    """The weight of each run in the mean, in sum 1, so that both orders of the arms weigh the same.

    `orders[i]`: whether the contender started second in run i. Equal weights with too few runs, or where the
    two orders are not both there at least twice.
    """
    if orders is None or runs < _LEAST_ORDERED or min(sum(orders), runs - sum(orders)) < 2:
        return [1 / runs] * runs
    return [1 / (2 * sum(each is order for each in orders)) for order in orders]


def estimate(
    log_ratios: Sequence[float],
    *,
    confidence: float,
    orders: Sequence[bool] | None = None,
    between: float = 0.0,
) -> Estimate:
    """The ratio with its interval, of a metric that decides no verdict. Arguments and errors as `compare`."""
    _level(confidence)
    mean = _with_between(_mean_of(log_ratios, orders), between)
    return Estimate(runs=mean.runs, confidence=confidence, **_interval(mean, confidence))


def compare(
    log_ratios: Sequence[float],
    *,
    margin: float,
    confidence: float,
    orders: Sequence[bool] | None = None,
    between: float = 0.0,
) -> Comparison:
    """Judge a study from `log_ratios`, the log(contender / baseline) of each measured run.

    `margin` is relative: 0.02 treats ratios from 1/1.02 to 1.02 as equal, so that swapping the
    arms swaps nothing but the sign. Each one-sided test has level 1 - `confidence`: with 0.95 the
    arms are equivalent when the 90 % interval lies between the bounds, with at least `LEAST_RUNS` runs. Where
    the runs are skewed, as by a stall that strikes few of them, the interval is longer on that side.
    Equivalence is tested first: a difference that is proven, and proven to be smaller than the margin, is
    equivalence. `orders[i]`: whether the contender started second in run i; the effect of the order is then
    estimated, and taken out.
    `between`: the deviation of the true log ratio that all runs of the study have in common, taken as known.

    Raises UsageError for fewer than 2 runs, a value that is not finite, or a setting out of range.
    Sources: Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680, for the tests;
    Hall (1992), Journal of the Royal Statistical Society B 54, 221-228, for skewed runs.
    """
    _bound_and_level(margin, confidence)
    mean = _mean_of(log_ratios, orders)
    judged = _judged(_with_between(mean, between), margin=margin, confidence=confidence)
    if judged.verdict not in OPEN or mean.runs < LEAST_RUNS:
        return judged
    # Skewed runs have a longer interval than others of their deviation.
    low, high = mean.bounds(confidence)
    student = 2 * t_statistic.quantile(0.5 + confidence / 2, mean.freedom) * mean.error
    longer = (high - low) / student if student else 1.0
    enough = runs_needed(
        mean=0.0,
        deviation=mean.deviation * longer,
        freedom=mean.freedom,
        margin=margin,
        confidence=confidence,
        between=between,
    )
    return dataclasses.replace(judged, enough_runs=enough)


def _mean_of(log_ratios: Sequence[float], orders: Sequence[bool] | None) -> _Mean:
    runs = len(log_ratios)
    if runs < 2:
        raise UsageError(
            f"{runs} measured run{'' if runs == 1 else 's'}: a confidence interval requires at least 2",
            remedy="set repeats = 12 under [prove], or pass --repeats 12",
        )
    _require_finite(log_ratios)
    weights = order_weights(orders, runs)
    if orders is None or runs < _LEAST_ORDERED or min(sum(orders), runs - sum(orders)) < 2:
        mean, deviation = _moments(log_ratios)
        error = deviation / math.sqrt(runs)
        return _Mean(mean, error, runs - 1, deviation, runs, _skewness([log_ratios], [1.0], error))
    groups = [
        [x for x, order in zip(log_ratios, orders, strict=True) if order is side] for side in (False, True)
    ]
    moments = [_moments(group) for group in groups]
    squares = [deviation**2 * (len(group) - 1) for (_, deviation), group in zip(moments, groups, strict=True)]
    deviation = math.sqrt(sum(squares) / (runs - 2))
    error = deviation * math.sqrt(1 / len(groups[0]) + 1 / len(groups[1])) / 2
    value = math.fsum(w * x for w, x in zip(weights, log_ratios, strict=True))
    order = (moments[1][0] - moments[0][0]) / 2
    skewness = _skewness(groups, [0.5, 0.5], error)
    return _Mean(value, error, runs - 2, deviation, runs, skewness, order=order, order_error=error)


def _skewness(groups: Sequence[Sequence[float]], weights: Sequence[float], error: float) -> float:
    """That of the weighted sum of the means of `groups`, whose values have one third cumulant, estimated
    from all of them (the k-statistic); 0 where they are too few, or equal."""
    if not error or sum(map(len, groups)) < _LEAST_SKEWED:
        return 0.0
    cubes, known, weight = 0.0, 0.0, 0.0
    for group, share in zip(groups, weights, strict=True):
        mean, runs = math.fsum(group) / len(group), len(group)
        cubes += math.fsum(((value - mean) / error) ** 3 for value in group)
        known += (runs - 1) * (runs - 2) / runs
        weight += share**3 / runs**2
    return cubes / known * weight


def _with_between(mean: _Mean, between: float) -> _Mean:
    """The mean with the error of a deviation that is taken as known: only the other part of the variance is
    estimated, and has degrees of freedom (Satterthwaite)."""
    if not between:
        return mean
    total = math.hypot(mean.error, between)
    freedom = min(_MANY, mean.freedom * (total / mean.error) ** 4) if mean.error else _MANY
    skewness = mean.skewness * (mean.error / total) ** 3
    return dataclasses.replace(mean, error=total, freedom=freedom, skewness=skewness)


def _interval(mean: _Mean, confidence: float) -> dict[str, Any]:
    low, high = mean.bounds(confidence)
    found = {
        "freedom": mean.freedom,
        "skewness": mean.skewness,
        "ratio": exp(mean.value),
        "low": exp(low),
        "high": exp(high),
    }
    if mean.order is not None:
        # What all runs have in common is in both orders.
        half_width = t_statistic.quantile(0.5 + confidence / 2, mean.runs - 2) * mean.order_error
        found |= {
            "order": exp(mean.order),
            "order_low": exp(mean.order - half_width),
            "order_high": exp(mean.order + half_width),
        }
    return found


def compare_means(
    first: Sequence[float],
    second: Sequence[float],
    *,
    margin: float,
    confidence: float,
    between: float = 0.0,
) -> Comparison:
    """Judge the change of a ratio from one study to another: second / first, from the log ratios of the runs
    of each. `between`: the deviation of the true log ratio from study to study, which no run of a study
    shows. `enough_runs` is not known.

    Raises UsageError for fewer than 2 runs, a value that is not finite, or a setting out of range.
    Sources: Welch (1947), Biometrika 34, 28-35; those of `compare` for the tests.
    """
    _bound_and_level(margin, confidence)
    found = _with_between(_change(first, second), between * math.sqrt(2))
    return _judged(found, margin=margin, confidence=confidence, least_runs=2)


def estimate_change(first: Sequence[float], second: Sequence[float], *, confidence: float) -> Estimate:
    """second / first with its interval, from logs of independent runs. Errors as `compare_means`."""
    _level(confidence)
    mean = _change(first, second)
    return Estimate(runs=mean.runs, confidence=confidence, **_interval(mean, confidence))


def _change(first: Sequence[float], second: Sequence[float]) -> _Mean:
    if min(len(first), len(second)) < 2:
        raise UsageError("fewer than 2 runs", remedy="measure more runs")
    _require_finite((*first, *second))
    moments = [_moments(each) for each in (first, second)]
    mean = moments[1][0] - moments[0][0]
    parts = [deviation**2 / len(each) for (_, deviation), each in zip(moments, (first, second), strict=True)]
    error = math.sqrt(sum(parts))
    # The shares of the whole cannot underflow, as the squares of the parts can.
    shares = [part / sum(parts) for part in parts] if error else [1.0, 0.0]
    freedom = 1 / sum(share**2 / (len(each) - 1) for share, each in zip(shares, (first, second), strict=True))
    skewness = _skewness([second], [1.0], error) - _skewness([first], [1.0], error)
    return _Mean(mean, error, min(freedom, _MANY), error, min(len(first), len(second)), skewness)


def _judged(found: _Mean, *, margin: float, confidence: float, least_runs: int = LEAST_RUNS) -> Comparison:
    """Judge an estimate of the log of a ratio by its standard error."""
    bound, _ = _bound_and_level(margin, confidence)
    shape = found.value, found.error, found.freedom, found.skewness
    inner_low, inner_high = map(exp, found.bounds(2 * confidence - 1))
    judged = Comparison(
        runs=found.runs,
        confidence=confidence,
        margin=margin,
        equivalence_p=equivalence_p(*shape, bound=bound),
        difference_p=difference_p(*shape),
        inner_low=inner_low,
        inner_high=inner_high,
        verdict=Verdict.UNDECIDED,
        **_interval(found, confidence),
    )
    verdict = verdict_of(judged, judged.equivalence_p, judged.difference_p, least_runs)
    return dataclasses.replace(judged, verdict=verdict)


def verdict_of(
    found: Comparison, equivalence_p: float, difference_p: float, least_runs: int = LEAST_RUNS
) -> Verdict:
    """The verdict by these p values, which may be corrected: a difference that is proven, and proven to be
    small, is equivalence. `least_runs`: that equivalence requires."""
    alpha = 1 - found.confidence
    if equivalence_p <= alpha and found.runs >= least_runs:
        return Verdict.EQUIVALENT
    if difference_p <= alpha < equivalence_p:
        return Verdict.DIFFERENT
    # The interval of fewer runs is wide on any machine.
    noisy = found.runs >= LEAST_RUNS and found.half_widths_of_margin > _TOO_NOISY
    return Verdict.TOO_NOISY if noisy else Verdict.UNDECIDED


def runs_needed(
    *,
    mean: float,
    deviation: float,
    margin: float,
    confidence: float,
    power: float = 0.8,
    between: float = 0.0,
    freedom: float | None = None,
) -> int | None:
    """The smallest number of runs with which a study gets a clear verdict with probability `power`.

    It is the total, at least 2. `mean` and `deviation` are those of the log ratios, taken as true; with
    `freedom`, the deviation was estimated with so many degrees of freedom, and the probability is over what
    it may be. `between`: the deviation that all runs of a study have in common, which more of them do not
    reduce. A clear verdict passes TOST or proves a difference, whichever needs fewer runs. None beyond
    `MOST_RUNS`. Both powers are those of the noncentral t (exact, TOST's two sides jointly), as an average
    over 200 equally likely slices of the sample deviation, which stays finite where `scipy.stats.nct` fails.

    Raises UsageError for a value that is not finite or a setting out of range.
    """
    bound, alpha = _bound_and_level(margin, confidence)
    _require_finite((mean, deviation))
    if deviation < 0:
        raise UsageError(f"the deviation is {deviation}; it must not be negative", remedy="use 0 or more")
    if not 0.5 <= power < 1:
        raise UsageError(f"the power is {power}; it must be at least 0.5 and below 1", remedy="use 0.8")

    deviations = [deviation]
    if freedom is not None:
        deviations = [deviation * math.sqrt(freedom / 2 / special.gammaincinv(freedom / 2, q)) for q in _FEW]

    def settles(runs: int) -> bool:
        powers = (_power(runs, mean, each, between, bound, alpha) for each in deviations)
        return math.fsum(powers) >= power * len(deviations)

    if not settles(MOST_RUNS):
        return None
    # Power grows with the number of runs wherever it reaches one half, so bisection finds the smallest.
    too_few, enough = 1, MOST_RUNS
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if settles(middle):
            enough = middle
        else:
            too_few = middle
    return enough


@functools.lru_cache(maxsize=1024)
def _sample_deviations(runs: int) -> Any:
    """Equally likely sample deviations of so many runs, in units of the true one."""
    return np.sqrt(2 * special.gammaincinv((runs - 1) / 2, _SLICES) / (runs - 1))


def _power(runs: int, mean: float, deviation: float, between: float, bound: float, alpha: float) -> float:
    """The larger of the probabilities that `runs` runs pass TOST and that they prove a difference.

    Given the sample deviation (w times the true one) both tests are statements about a normal mean.
    The tail that would prove a difference with the wrong sign is not counted.
    """
    w = _sample_deviations(runs)
    # The floor replaces zero: all tests then pass or fail for certain, without 0 * inf.
    error = max(deviation, 1e-100) / math.sqrt(runs)
    true, seen = math.hypot(error, between), np.hypot(error * w, between)
    # As in a study, only the part of the runs is estimated (Satterthwaite).
    estimated = np.minimum(seen / (error * w), _MANY)
    freedom = np.minimum((runs - 1) * estimated**4, _MANY) if between else runs - 1
    one_sided, two_sided = (special.stdtrit(freedom, 1 - level) * seen / true for level in (alpha, alpha / 2))
    inside = special.ndtr((bound - mean) / true - one_sided) - special.ndtr(one_sided - (bound + mean) / true)
    equivalent = float(np.mean(np.maximum(inside, 0)))
    different = float(np.mean(special.ndtr(abs(mean) / true - two_sided)))
    return max(equivalent, different)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample deviation (runs - 1); equal values have exactly their value and 0."""
    if min(values) == max(values):
        return values[0], 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1)


def equivalence_p(mean: float, error: float, freedom: float, skewness: float = 0.0, *, bound: float) -> float:
    """The larger p of the two one-sided tests that the mean lies within the bounds (TOST), by Student and by
    Hall."""
    return max(
        t_statistic.upper_tail(bound + side * mean, error, freedom, side * each)
        for side in (1, -1)
        for each in (0.0, skewness)
    )


def difference_p(mean: float, error: float, freedom: float, skewness: float = 0.0) -> float:
    """The two-sided p of the test that the mean is not 0: the larger of Student's and Hall's."""

    def smaller_tail(bent: float) -> float:
        return min(t_statistic.upper_tail(side * mean, error, freedom, side * bent) for side in (1, -1))

    return min(1.0, 2 * max(smaller_tail(0.0), smaller_tail(skewness)))


def exp(value: float) -> float:
    """Like math.exp, but a bound beyond the floats is infinite: 2 wild runs have such intervals."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _bound_and_level(margin: float, confidence: float) -> tuple[float, float]:
    if not 0 < margin < 1:
        raise UsageError(
            f"the margin is {margin}; it must be above 0 and below 1", remedy="set margin = 0.02 for 2 %"
        )
    return math.log1p(margin), _level(confidence)


def _level(confidence: float) -> float:
    if not 0.5 < confidence < 1:
        raise UsageError(
            f"the confidence is {confidence}; it must be above 0.5 and below 1",
            remedy="set confidence = 0.95",
        )
    return 1 - confidence


def _require_finite(values: Sequence[float]) -> None:
    wrong = [value for value in values if not math.isfinite(value)]
    if wrong:
        raise UsageError(
            f"{len(wrong)} of {len(values)} values are not finite",
            context=f"the first is {wrong[0]}: from a step, window or run without duration",
            remedy="find the run in the raw records, fix its cause and repeat the study",
        )
