"""Pure: the metrics of two arms: one value per arm and run, and the ratio that follows from them.

Only the primary metric is tested. The others have intervals and no verdict: the margin was chosen for the
primary one, and of many tests some succeed by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bareboat.model import MetricRequest, Window
from bareboat.model.metric import primary_of
from bareboat_base.errors import UsageError
from bareboat_study import quantities, waiting, windows
from bareboat_study.statistics import Comparison, Estimate, compare, estimate, order_weights
from bareboat_study.windows import Pair

THROUGHPUT = "throughput"
#: By the trimmed mean of the blocks.
TYPICAL = "throughput, typical windows"
WAITS = "slowdown by waits"

#: Units of quantities that do not depend on how the pages of a program lie.
_AMOUNTS = ("bytes", "%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One quantity in both arms: a value per measured run, and what follows from the pairs about their ratio.

    `baseline[i]`, `contender[i]` and `effects[i]`, the log of their ratio, come from the same run. The ratio
    is contender over baseline. `blocks[i]`: the log ratios of the run's blocks, for display.
    `baseline_mean` and `contender_mean`: geometric means, so that their quotient is the ratio.
    The study's verdict is that of the `primary` metric, whose `comparison` has tests; the others are
    secondary metrics.
    """

    name: str
    unit: str
    higher_is_better: bool
    primary: bool
    baseline: tuple[float, ...]
    contender: tuple[float, ...]
    baseline_mean: float
    contender_mean: float
    effects: tuple[float, ...]
    comparison: Estimate
    blocks: tuple[tuple[float, ...], ...] = ()

    @property
    def tests(self) -> tuple[float, float, float] | tuple[None, None, None]:
        """The margin, and the p values of equivalence and of a difference; of the primary metric only."""
        found = self.comparison
        if not isinstance(found, Comparison):
            return None, None, None
        return found.margin, found.equivalence_p, found.difference_p


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """How the runs are judged. `orders[i]`: whether the contender started second in run i. `between`: the
    deviation of the true log ratio of a speed that no run of the study shows."""

    margin: float
    confidence: float
    orders: tuple[bool, ...]
    between: float = 0.0

    def judge(self, effects: Sequence[float], unit: str) -> Comparison:
        return compare(
            effects,
            margin=self.margin,
            confidence=self.confidence,
            orders=self.orders,
            between=self.between_of(effects, unit),
        )

    def estimate(self, effects: Sequence[float], unit: str) -> Estimate:
        return estimate(
            effects, confidence=self.confidence, orders=self.orders, between=self.between_of(effects, unit)
        )

    def between_of(self, effects: Sequence[float], unit: str) -> float:
        """`between` for a metric: 0 for what is no speed or time: an amount, or a value that never varies."""
        return 0.0 if unit in _AMOUNTS or min(effects) == max(effects) else self.between


def make(
    name: str,
    unit: str,
    values: Sequence[tuple[float, float]],
    inference: Inference,
    *,
    primary: bool = False,
    higher_is_better: bool = False,
    blocks: tuple[tuple[float, ...], ...] = (),
) -> Metric | None:
    """The metric of these values, baseline and contender in each run; None where one is not above 0, because
    it was not measured (for example in a run too short for samples)."""
    if not all(math.isfinite(value) and value > 0 for pair in values for value in pair):
        return None
    baseline, contender = (tuple(pair[side] for pair in values) for side in (0, 1))
    effects = tuple(math.log(b / a) for a, b in values)
    weights = order_weights(inference.orders, len(values))
    means = [
        math.exp(math.fsum(weight * math.log(value) for weight, value in zip(weights, side, strict=True)))
        for side in (baseline, contender)
    ]
    return Metric(
        name=name,
        unit=unit,
        higher_is_better=higher_is_better,
        primary=primary,
        baseline=baseline,
        contender=contender,
        baseline_mean=means[0],
        contender_mean=means[1],
        effects=effects,
        comparison=inference.judge(effects, unit) if primary else inference.estimate(effects, unit),
        blocks=blocks,
    )


def as_secondary(metric: Metric, inference: Inference) -> Metric:
    """The metric without tests."""
    return replace(metric, primary=False, comparison=inference.estimate(metric.effects, metric.unit))


def declared(
    requests: Sequence[MetricRequest], pairs: Sequence[Pair], inference: Inference
) -> tuple[list[Metric], list[str]]:
    """The metrics that a study declares, the primary one first, and a note about those that are not compared.
    Raises UsageError where the primary one is among them."""
    primary = primary_of(tuple(requests))
    if primary is None:
        return [], []
    own = sorted((each for each in requests if not each.is_curve), key=lambda each: each is not primary)
    made = [
        make(
            each.name,
            each.unit,
            [(float(first.results[each.name]), float(second.results[each.name])) for first, second in pairs],
            inference,
            primary=each is primary,
            higher_is_better=each.higher_is_better,
        )
        for each in own
    ]
    if made[0] is None:
        raise UsageError(f"{primary.name}, the primary metric, is not a number above 0 in every run")
    missing = sorted(each.name for each, found in zip(own, made, strict=True) if found is None)
    notes = [f"Not compared, because a value is not a number above 0: {', '.join(missing)}."]
    return [metric for metric in made if metric is not None], notes if missing else []


def built_in(pairs: Sequence[Pair], inference: Inference) -> tuple[list[Metric], bool]:
    """The metrics of all studies, the primary one first, and whether there is a meter."""
    metered = all(record.windows for pair in pairs for record in pair)
    found: list[Metric | None] = []
    if metered:
        found = _of_windows(pairs, inference)
    for name, unit, value in quantities.of_runs(metered):
        values = [(value(pair[0]), value(pair[1])) for pair in pairs]
        is_primary = not any(found)
        found.append(make(name, unit, values, inference, primary=is_primary))
    return [metric for metric in found if metric is not None], metered


def _of_windows(pairs: Sequence[Pair], inference: Inference) -> list[Metric | None]:
    found: list[Metric | None] = [
        _throughput(THROUGHPUT, pairs, inference, windows.total_speeds, primary=True),
        _throughput(TYPICAL, pairs, inference, windows.typical_speeds),
    ]
    if not waiting.is_counted(pairs):
        return found
    unit = "s/sample" if _is_counted_in_samples(pairs) else "s/step"
    found += [
        make(WAITS, "", [_of_both(pair, waiting.factor) for pair in pairs], inference),
        make("processor time", unit, [_of_both(pair, waiting.cpu_step_s) for pair in pairs], inference),
    ]
    return found


def _of_both(pair: Pair, value: Callable[[Sequence[Window], float], float]) -> tuple[float, float]:
    shared = windows.shared(pair)
    first, second = (
        value([both[arm] for both in shared], record.samples_per_step or 1.0)
        for arm, record in enumerate(pair)
    )
    return first, second


def _is_counted_in_samples(pairs: Sequence[Pair]) -> bool:
    return any((record.samples_per_step or 1.0) != 1.0 for pair in pairs for record in pair)


def _throughput(
    name: str,
    pairs: Sequence[Pair],
    inference: Inference,
    speeds: Callable[[Pair], tuple[float, float]],
    *,
    primary: bool = False,
) -> Metric | None:
    return make(
        name,
        "samples/s" if _is_counted_in_samples(pairs) else "steps/s",
        [speeds(pair) for pair in pairs],
        inference,
        primary=primary,
        higher_is_better=True,
        blocks=tuple(tuple(windows.block_log_ratios(pair)) for pair in pairs),
    )


def window_order(pairs: Sequence[Pair], confidence: float) -> Estimate | None:
    """How much longer the window takes that comes second in a block; None where it is not known."""
    found = []
    for pair in pairs:
        sides: dict[bool, list[float]] = {True: [], False: []}
        for first, second in windows.shared(pair):
            ratio = math.log(windows.step_s(second) / windows.step_s(first))
            sides[second.began_s > first.began_s].append(ratio)
        if not all(sides.values()):
            return None
        means = [math.fsum(sides[side]) / len(sides[side]) for side in (True, False)]
        found.append((means[0] - means[1]) / 2)
    return estimate(found, confidence=confidence) if len(found) > 1 else None


def orders(pairs: Sequence[Pair]) -> tuple[bool, ...]:
    """Of each run, whether the contender started after the baseline."""
    return tuple(contender.position > baseline.position for baseline, contender in pairs)
