"""Pure: two studies of the same arms: how the ratios of the arms changed from one to the other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from bareboat.study import families
from bareboat.study.statistics import Comparison, Verdict, compare_means, geometric_mean, verdict_of

#: Baseline, contender, and the point.
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The primary metric of two arms at a point: contender / baseline in each run."""

    metric: str
    ratios: tuple[float, ...]

    @property
    def logs(self) -> list[float]:
        return [math.log(ratio) for ratio in self.ratios]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The primary metric's ratio of two arms at a point in both studies, and second / first. `verdict` is
    corrected for the number of changes (Holm)."""

    baseline: str
    contender: str
    label: str
    first: float
    second: float
    comparison: Comparison
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """`only_first`, `only_second`: places that the other study did not measure. `other_metric`: places where
    the primary metrics differ."""

    metric: str
    found: tuple[Change, ...]
    only_first: tuple[Place, ...]
    only_second: tuple[Place, ...]
    other_metric: tuple[Place, ...]


def between(
    first: Sequence[tuple[Place, Effects]],
    second: Sequence[tuple[Place, Effects]],
    *,
    margin: float,
    confidence: float,
) -> Changes:
    """What changed at the places that both studies measured."""
    others = dict(second)
    made, other_metric = [], []
    for place, own in first:
        other = others.get(place)
        if other is None:
            continue
        if own.metric != other.metric:
            other_metric.append(place)
            continue
        compared = compare_means(own.logs, other.logs, margin=margin, confidence=confidence)
        made.append(
            Change(
                baseline=place[0],
                contender=place[1],
                label=place[2],
                first=geometric_mean(own.ratios),
                second=geometric_mean(other.ratios),
                comparison=compared,
                verdict=compared.verdict,
            )
        )
    verdicts = corrected([each.comparison for each in made])
    known = dict(first)
    return Changes(
        metric=next((own.metric for _, own in first), ""),
        found=tuple(
            dataclasses.replace(each, verdict=verdict) for each, verdict in zip(made, verdicts, strict=True)
        ),
        only_first=tuple(place for place in known if place not in others),
        only_second=tuple(place for place in others if place not in known),
        other_metric=tuple(other_metric),
    )


def corrected(compared: Sequence[Comparison]) -> list[Verdict]:
    """The verdicts of a family, corrected for their number (Holm)."""
    equal = families.holm([each.equivalence_p for each in compared])
    differ = families.holm([each.difference_p for each in compared])
    return [
        verdict_of(equal_p, differ_p, 1 - each.confidence)
        for each, equal_p, differ_p in zip(compared, equal, differ, strict=True)
    ]
