"""Pure: the metrics of two arms: one value per arm and run, and the ratio that follows from them.

Only the primary metric is tested. The others have intervals and no verdict: the margin was chosen for the
primary one, and of many tests some succeed by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from bareboat.model import MetricRequest
from bareboat.model.metric import primary_of
from bareboat_base.errors import UsageError
from bareboat_study import quantities, windows
from bareboat_study.statistics import Comparison, Estimate, compare, contrast, estimate, mean_of
from bareboat_study.windows import Pair, Run

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
    """How the runs are judged. `positions[run][arm]`: when the arm started. `between`: the deviation of the
    true log ratio of a speed that no run of the study shows."""

    margin: float
    confidence: float
    positions: tuple[tuple[int, ...], ...]
    between: float = 0.0

    def between_of(self, effects: Sequence[float], unit: str) -> float:
        """`between` for a metric: 0 for what is no speed or time: an amount, or a value that never varies."""
        return 0.0 if unit in _AMOUNTS or min(effects) == max(effects) else self.between


def make(
    name: str,
    unit: str,
    values: Sequence[Sequence[float]],
    inference: Inference,
    *,
    primary: bool = False,
    higher_is_better: bool = False,
    blocks: tuple[tuple[float, ...], ...] = (),
) -> Metric | None:
    """The metric of these values, of all arms in each run, baseline and contender first; None where one of
    these two is not above 0, because it was not measured (for example in a run too short for samples)."""
    known = [
        arm
        for arm, own in enumerate(zip(*values, strict=True))
        if all(math.isfinite(value) and value > 0 for value in own)
    ]
    if known[:2] != [0, 1]:
        return None
    logs = [[math.log(row[arm]) for arm in known] for row in values]
    mean = contrast(logs, [[row[arm] for arm in known] for row in inference.positions])
    effects = tuple(row[1] - row[0] for row in logs)
    level, between = inference.confidence, inference.between_of(effects, unit)
    return Metric(
        name=name,
        unit=unit,
        higher_is_better=higher_is_better,
        primary=primary,
        baseline=tuple(row[0] for row in values),
        contender=tuple(row[1] for row in values),
        baseline_mean=math.exp(mean.sides[0]),
        contender_mean=math.exp(mean.sides[1]),
        effects=effects,
        comparison=compare(mean, margin=inference.margin, confidence=level, between=between)
        if primary
        else estimate(mean, confidence=level, between=between),
        blocks=blocks,
    )


def as_secondary(metric: Metric) -> Metric:
    """The metric without tests."""
    known = {each.name: getattr(metric.comparison, each.name) for each in fields(Estimate)}
    return replace(metric, primary=False, comparison=Estimate(**known))


def declared(
    requests: Sequence[MetricRequest], runs: Sequence[Run], inference: Inference
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
            [[float(record.results[each.name]) for record in run] for run in runs],
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


def built_in(runs: Sequence[Run], inference: Inference) -> tuple[list[Metric], bool]:
    """The metrics of all studies, the primary one first, and whether there is a meter."""
    metered = all(record.windows for run in runs for record in run)
    found: list[Metric | None] = []
    if metered:
        found = _of_windows(runs, inference)
    for name, unit, value in quantities.of_runs(metered):
        values = [[value(record) for record in run] for run in runs]
        is_primary = not any(found)
        found.append(make(name, unit, values, inference, primary=is_primary))
    return [metric for metric in found if metric is not None], metered


def _of_windows(runs: Sequence[Run], inference: Inference) -> list[Metric | None]:
    is_counted = any((record.samples_per_step or 1.0) != 1.0 for run in runs for record in run)
    found = [
        make(
            name,
            "samples/s" if is_counted else "steps/s",
            [speeds(run) for run in runs],
            inference,
            primary=name == THROUGHPUT,
            higher_is_better=True,
            blocks=tuple(tuple(windows.block_log_ratios((run[0], run[1]))) for run in runs),
        )
        for name, speeds in ((THROUGHPUT, windows.total_speeds), (TYPICAL, windows.typical_speeds))
    ]
    if not windows.has_waits(runs):
        return found
    for name, unit, value in (
        (WAITS, "", windows.waits_factor),
        ("processor time", "s/sample" if is_counted else "s/step", windows.cpu_step_s),
    ):
        values = [[value(each.windows, each.samples_per_step or 1.0) for each in run] for run in runs]
        found.append(make(name, unit, values, inference))
    return found


def window_order(pairs: Sequence[Pair], confidence: float) -> Estimate | None:
    """How much longer the window takes that comes second in a block; None where it is not known."""
    found = []
    for pair in pairs:
        sides: dict[bool, list[float]] = {True: [], False: []}
        for first, second in zip(*(record.windows for record in pair), strict=True):
            ratio = math.log(windows.step_s(second) / windows.step_s(first))
            sides[second.began_s > first.began_s].append(ratio)
        if not all(sides.values()):
            return None
        means = [math.fsum(sides[side]) / len(sides[side]) for side in (True, False)]
        found.append((means[0] - means[1]) / 2)
    return estimate(mean_of(found), confidence=confidence) if len(found) > 1 else None
