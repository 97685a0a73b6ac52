"""The statistics of a study. Pure: logs of the arms' values in, a verdict out.

The unit of inference is the run: a fresh pair of processes gives one log ratio, whatever the number of
windows inside it. `docs/measurement.md` explains why; `bench/verdict.py` measures the error rates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
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

#: Numbers that differ by less, relative to the largest, are equal.
_ROUNDING = 1e-12

#: An interval whose half-width is this many margins, with no verdict, is called too noisy.
_TOO_NOISY = 3.0

#: An interval of few runs with this half-width, as a logarithm, means nothing: from 2/3 to 1.5 times.
_WIDEST = math.log(1.5)

#: Degrees of freedom of a variance that is known.
_MANY = 1e6

#: Of the number of runs that is suggested for a new study.
_POWER = 0.8

# Midpoints of equally likely slices: `runs_needed` averages over the sampling of the deviation with them.
_SLICES = (np.arange(50) + 0.5) / 50
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
    `skewness`. `order`: the factor by which the arm that starts last has more of the metric than it would
    have first, with its interval in `order_low` and `order_high`; None where it was not estimated.
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
    def half_widths_of_margin(self) -> float:
        """The half width of the interval relative to the margin, both as logarithms."""
        return self.half_width / math.log1p(self.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean of log ratios with its standard error. `deviation`: of a run; 0 where runs have none of their
    own. `skewness`: of the mean, its third cumulant over the cube of the error. `sides`: the mean logs of the
    two arms. `order`: the effect of starting last instead of first; None where it is not estimated."""

    value: float
    error: float
    freedom: float
    runs: int
    deviation: float = 0.0
    skewness: float = 0.0
    sides: tuple[float, float] = (0.0, 0.0)
    order: Mean | None = None

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Of the two-sided interval: the outer of Student's and Hall's ends."""
        ends = [
            self.value - t_statistic.quantile(p, self.freedom, skewness) * self.error
            for skewness in (0.0, self.skewness)
            for p in ((1 + confidence) / 2, (1 - confidence) / 2)
        ]
        return min(ends), max(ends)


def contrast(logs: npt.ArrayLike, positions: npt.ArrayLike | None = None) -> Mean:
    """The second arm over the first, by one linear model of all arms: log value = arm + position + run.

    `logs[run][arm]`; `positions[run][arm]`: the place at which the arm started. Least squares over all arms
    estimates the positions, so the ratios of any arms multiply, and a position that an arm has more often
    than another, because runs failed, is taken out. The error is that of the two arms alone: their ratios in
    the runs, without the positions, so that a third arm that varies more does not count. For two arms this
    is the mean of both orders, with one degree of freedom less. Each run has every arm, so its own part
    cancels. With few runs, the balanced order alone keeps the positions apart.

    Raises UsageError for fewer than 2 runs, or a value that is not finite.
    Source: Cochran and Cox (1957), Experimental Designs, chapter 4.
    """
    values = np.asarray(logs, dtype=float)
    runs = len(values)
    if runs < 2:
        raise UsageError(
            f"{runs} measured run{'' if runs == 1 else 's'}: a confidence interval requires at least 2",
            remedy="set repeats = 12 under [prove], or pass --repeats 12",
        )
    _require_finite(values.ravel().tolist())
    places = np.zeros(values.shape) if positions is None else np.asarray(positions)
    levels = np.unique(places)
    at = (places[..., None] == levels) * float(runs >= max(_LEAST_ORDERED, len(levels) + 2))
    # Errors of rounding are no differences.
    least = _ROUNDING * max(1.0, float(np.abs(values).max()))
    design, inner = _within(at).reshape(values.size, -1), _within(values).ravel()
    inner[np.abs(inner) < least] = 0
    solve = np.linalg.pinv(design, rcond=_ROUNDING)
    inverse, effects = solve @ solve.T, solve @ inner
    sides = values[:, :2] - (at @ effects)[:, :2]
    ratios = sides[:, 1] - sides[:, 0]
    ratios[np.abs(ratios) < least] = 0
    value = math.fsum(ratios) / runs
    residuals = ratios - value
    residuals[np.abs(residuals) < least] = 0
    # The weight of each run in the ratio, and how much of each run's noise is in each residual.
    shift = at[:, 1] - at[:, 0]
    lean = shift.mean(axis=0)
    weights = 1 / runs - (shift - lean) @ inverse @ lean / 2
    left = np.eye(runs) - 1 / runs - (shift - lean) @ inverse @ (shift - lean).T / 2
    freedom = round(float(np.trace(left)), 9)
    deviation = math.hypot(*residuals.tolist()) / math.sqrt(freedom)
    error = deviation * math.sqrt(1 / runs + lean @ inverse @ lean / 2)
    skewness = 0.0
    if error and runs >= _LEAST_SKEWED:
        skewness = math.fsum((residuals / error) ** 3) * float((weights**3).sum() / (left**3).sum())
    middle = float(weights @ sides.mean(axis=1))
    return Mean(
        value=value,
        error=error,
        freedom=freedom,
        deviation=deviation,
        runs=runs,
        skewness=skewness,
        sides=(middle - value / 2, middle + value / 2),
        order=_order(design, solve, inner, (runs - 1) * (values.shape[1] - 1)),
    )


def _order(design: Any, solve: Any, inner: Any, freedom: int) -> Mean | None:
    """The last position against the first; None where the runs do not show it. `freedom`: that of the model
    without positions."""
    known = solve @ design
    ends = np.eye(len(solve))[-1] - np.eye(len(solve))[0]
    if not ends.any() or np.abs(ends @ known - ends).max() > math.sqrt(_ROUNDING):
        return None
    effects, weights = solve @ inner, ends @ solve
    freedom -= round(float(np.trace(known)))
    spread = math.hypot(*(inner - design @ effects).tolist()) / math.sqrt(freedom)
    error = spread * math.hypot(*weights.tolist())
    return Mean(value=float(ends @ effects), error=error, freedom=freedom, runs=len(inner))


def _within(values: Any) -> Any:
    """What neither the run nor the arm explains."""
    return values - values.mean(0) - values.mean(1, keepdims=True) + values.mean((0, 1))


def mean_of(log_ratios: Sequence[float]) -> Mean:
    """The mean of independent log ratios. Errors as `contrast`."""
    return contrast([(0.0, each) for each in log_ratios])


def change(first: Sequence[float], second: Sequence[float]) -> Mean:
    """second / first, from the logs of independent runs of each, such as those of two studies. Errors as
    `contrast`.

    Source: Welch (1947), Biometrika 34, 28-35.
    """
    sides = [mean_of(each) for each in (first, second)]
    error = math.hypot(*(each.error for each in sides))
    # The shares of the whole cannot underflow, as the squares of the parts can.
    shares = [(each.error / error) ** 2 if error else 0.5 for each in sides]
    cubes = [each.skewness * (each.error / error) ** 3 if error else 0.0 for each in sides]
    freedom = 1 / sum(share**2 / each.freedom for share, each in zip(shares, sides, strict=True))
    return Mean(
        value=sides[1].value - sides[0].value,
        error=error,
        freedom=min(freedom, _MANY),
        runs=min(each.runs for each in sides),
        skewness=cubes[1] - cubes[0],
    )


def estimate(mean: Mean, *, confidence: float, between: float = 0.0) -> Estimate:
    """The ratio with its interval, of a metric that decides no verdict. Arguments as `compare`.

    Raises UsageError for a confidence out of range.
    """
    _level(confidence)
    mean = _with_between(mean, between)
    return Estimate(runs=mean.runs, confidence=confidence, **_interval(mean, confidence))


def compare(
    mean: Mean, *, margin: float, confidence: float, between: float = 0.0, least_runs: int = LEAST_RUNS
) -> Comparison:
    """Judge the log ratio of contender / baseline.

    `margin` is relative: 0.02 treats ratios from 1/1.02 to 1.02 as equal, so that swapping the
    arms swaps nothing but the sign. Each one-sided test has level 1 - `confidence`: with 0.95 the
    arms are equivalent when the 90 % interval lies between the bounds, with at least `least_runs` runs. Where
    the runs are skewed, as by a stall that strikes few of them, the interval is longer on that side.
    Equivalence is tested first: a difference that is proven, and proven to be smaller than the margin, is
    equivalence.
    `between`: the deviation of the true log ratio that all runs of the study have in common, taken as known.

    Raises UsageError for a setting out of range.
    Sources: Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680, for the tests;
    Hall (1992), Journal of the Royal Statistical Society B 54, 221-228, for skewed runs.
    """
    bound, _ = _bound_and_level(margin, confidence)
    found = _with_between(mean, between)
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
    judged = dataclasses.replace(judged, verdict=verdict)
    if verdict not in OPEN or mean.runs < LEAST_RUNS or not mean.deviation:
        return judged
    # Skewed runs have a longer interval than others of their deviation.
    low, high = mean.bounds(confidence)
    student = 2 * t_statistic.quantile(0.5 + confidence / 2, mean.freedom) * mean.error
    longer = (high - low) / student if student else 1.0
    enough = runs_needed(
        deviation=mean.deviation * longer,
        freedom=mean.freedom,
        margin=margin,
        confidence=confidence,
        between=between,
    )
    return dataclasses.replace(judged, enough_runs=enough)


def _with_between(mean: Mean, between: float) -> Mean:
    """The mean with the error of a deviation that is taken as known: only the other part of the variance is
    estimated, and has degrees of freedom (Satterthwaite)."""
    if not between:
        return mean
    total = math.hypot(mean.error, between)
    freedom = min(_MANY, mean.freedom * (total / mean.error) ** 4) if mean.error else _MANY
    skewness = mean.skewness * (mean.error / total) ** 3
    return dataclasses.replace(mean, error=total, freedom=freedom, skewness=skewness)


def _interval(mean: Mean, confidence: float) -> dict[str, Any]:
    low, high = mean.bounds(confidence)
    found = {
        "freedom": mean.freedom,
        "skewness": mean.skewness,
        "ratio": exp(mean.value),
        "low": exp(low),
        "high": exp(high),
    }
    if mean.order is not None:
        # What all runs have in common is in all positions.
        found["order"] = exp(mean.order.value)
        found["order_low"], found["order_high"] = map(exp, mean.order.bounds(confidence))
    return found


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
    *, deviation: float, margin: float, confidence: float, freedom: float | None = None, between: float = 0.0
) -> int | None:
    """The smallest number of runs, at least 2, with which a study shows with a probability of 80 % that arms
    which do not differ are equivalent; None beyond `MOST_RUNS`.

    `deviation`: of the log ratios of the runs; with `freedom`, it was estimated with so many degrees of
    freedom, and the probability is over what it may be. `between`: the deviation that all runs of a study
    have in common, which more of them do not reduce. The power is that of the noncentral t (exact, both sides
    jointly), as an average over 50 equally likely slices of the sample deviation, which stays finite where
    `scipy.stats.nct` fails.

    Raises UsageError for a deviation that is not finite or a setting out of range.
    """
    bound, alpha = _bound_and_level(margin, confidence)
    _require_finite([deviation])
    # The floor replaces zero: the tests then pass or fail for certain, without 0 * inf.
    deviations = np.full((1, 1), max(deviation, 1e-100))
    if freedom is not None:
        deviations = deviations * np.sqrt(freedom / 2 / special.gammaincinv(freedom / 2, _FEW))[:, None]

    def settles(runs: int) -> bool:
        # Given the sample deviation (w times the true one) the test is a statement about a normal mean.
        w = np.sqrt(2 * special.gammaincinv((runs - 1) / 2, _SLICES) / (runs - 1))
        errors = deviations / math.sqrt(runs)
        true, seen = np.hypot(errors, between), np.hypot(errors * w, between)
        free: Any = runs - 1
        if between:
            # As in a study, only the part of the runs is estimated (Satterthwaite).
            free = np.minimum(free * np.minimum(seen / (errors * w), _MANY) ** 4, _MANY)
        room = (bound - special.stdtrit(free, 1 - alpha) * seen) / true
        return float(np.mean(np.maximum(2 * special.ndtr(room) - 1, 0))) >= _POWER

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


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values after Holm's correction, in the given order.

    Where the null hypotheses with a corrected value of at most alpha are rejected, the probability that any
    of them is true is at most alpha, whatever depends on what.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def holm_corrected(
    compared: Sequence[Comparison], *, least_runs: int | None = None
) -> list[tuple[float, float, Verdict]]:
    """Of each comparison the corrected p values of equivalence and of a difference, which are two families,
    and the verdict by them. `least_runs`: that equivalence requires; None: as in a study."""
    least = least_runs or (LEAST_RUNS_OF_MANY if len(compared) > 1 else LEAST_RUNS)
    equal = holm([each.equivalence_p for each in compared])
    differ = holm([each.difference_p for each in compared])
    return [
        (equal_p, differ_p, verdict_of(each, equal_p, differ_p, least))
        for each, equal_p, differ_p in zip(compared, equal, differ, strict=True)
    ]
