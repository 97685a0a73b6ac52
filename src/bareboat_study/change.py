"""Pure: two studies of the same arms: how the ratios of the arms changed from one to the other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bareboat_study.measures import Metric
from bareboat_study.statistics import Comparison, Verdict, change, compare, holm_corrected

#: The deviation of the true log ratio of two arms from one study to the next, which no run of a study shows,
#: where each run has new layouts of files in the page cache: an assumption (docs/measurement.md).
BETWEEN_STUDIES = 0.005

#: Baseline, contender, and the point.
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The primary metric of two arms at a point: contender / baseline in each run. `unusable`: whether they
    are no result. `layouts`: the deviation between layouts that no run shows."""

    metric: str
    ratios: tuple[float, ...]
    unusable: bool = False
    layouts: float = 0.0

    @property
    def logs(self) -> list[float]:
        return [math.log(ratio) for ratio in self.ratios]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A metric's ratio of two arms at a point in both studies, and second / first. `verdict` is corrected for
    the number of points (Holm)."""

    baseline: str
    contender: str
    label: str
    metric: str
    first: float
    second: float
    comparison: Comparison
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """`metric`: the primary one. `only_first`, `only_second`: places that the other study did not measure.
    `other_metric`: places where the primary metrics differ. `unusable`: places whose ratio is no result in
    one of the studies."""

    metric: str
    found: tuple[Change, ...]
    only_first: tuple[Place, ...]
    only_second: tuple[Place, ...]
    other_metric: tuple[Place, ...] = ()
    unusable: tuple[Place, ...] = ()


def between(
    first: Sequence[tuple[Place, Effects]],
    second: Sequence[tuple[Place, Effects]],
    *,
    margin: float,
    confidence: float,
) -> Changes:
    """What changed at the places that both studies measured."""
    others = dict(second)
    made, other_metric, unusable = [], [], []
    for place, own in first:
        other = others.get(place)
        if other is None:
            continue
        if own.metric != other.metric:
            other_metric.append(place)
            continue
        if own.unusable or other.unusable:
            unusable.append(place)
            continue
        made.append(_change(place, own, other, margin=margin, confidence=confidence))
    verdicts = holm_corrected([each.comparison for each in made], least_runs=2)
    known = dict(first)
    return Changes(
        metric=next((own.metric for _, own in first), ""),
        found=tuple(
            dataclasses.replace(each, verdict=verdict)
            for each, (_, _, verdict) in zip(made, verdicts, strict=True)
        ),
        only_first=tuple(place for place in known if place not in others),
        only_second=tuple(place for place in others if place not in known),
        other_metric=tuple(other_metric),
        unusable=tuple(unusable),
    )


def _change(place: Place, own: Effects, other: Effects, *, margin: float, confidence: float) -> Change:
    # What no run shows is in both studies.
    between = between_studies(own.layouts, other.layouts) * math.sqrt(2)
    compared = compare(
        change(own.logs, other.logs), margin=margin, confidence=confidence, between=between, least_runs=2
    )
    return Change(
        baseline=place[0],
        contender=place[1],
        label=place[2],
        metric=own.metric,
        first=geometric_mean(own.ratios),
        second=geometric_mean(other.ratios),
        comparison=compared,
        verdict=compared.verdict,
    )


def between_studies(*layouts: float) -> float:
    """The deviation of each of several studies, in the root mean square. `layouts`: that between layouts,
    where a study kept its own."""
    return math.sqrt(sum(max(each, BETWEEN_STUDIES) ** 2 for each in layouts) / len(layouts))


def balanced(metric: Metric) -> tuple[float, ...]:
    """The ratios of the runs about the ratio of the study, which weighs both orders of the arms alike."""
    mean = math.fsum(metric.effects) / len(metric.effects)
    return tuple(math.exp(effect - mean) * metric.comparison.ratio for effect in metric.effects)
