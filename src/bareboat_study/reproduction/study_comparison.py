"""Pure: whether two studies found the same: the ratios of the arms at each point, and the values of each arm.

The ratios are judged. The values are those of a machine, so another one has others: they are shown, and
judged where the user gives their metric a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bareboat.model.matrix import point_text
from bareboat_base.printable import one_line
from bareboat_study import change, families, layouts
from bareboat_study.change import Effects, Place
from bareboat_study.numbers import TOO_FEW_RUNS
from bareboat_study.reproduction.comparison import Compared, Tolerances
from bareboat_study.reproduction.document import LockedStudy, PairResult, Values
from bareboat_study.statistics import Comparison, Verdict, compare_means, geometric_mean

_EQUAL = {Verdict.EQUIVALENT: True, Verdict.DIFFERENT: False}
#: Arm, label of the point, metric.
_Level = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`ratios` are judged, and of `values` those whose `equal` is not None. `is_compared`: whether anything
    was measured in both. `changed`: the values that are not judged and differ."""

    ratios: tuple[Compared, ...]
    values: tuple[Compared, ...]
    is_compared: bool
    judged: tuple[bool | None, ...]
    changed: tuple[str, ...]


def of_studies(first: LockedStudy, second: LockedStudy, tolerances: Tolerances) -> Outcome:
    """Compare two studies of the same arms; `first`: the locked one, whose margin and confidence count."""
    ratios = list(_ratios(first, second))
    values, decided, changed = _values(first, second, tolerances)
    return Outcome(
        ratios=tuple(ratios),
        values=tuple(values),
        is_compared=any(each.text for each in ratios),
        judged=(*(each.equal for each in ratios if each.text or each.equal is False), *decided),
        changed=tuple(changed),
    )


def results(matrix: LockedStudy) -> dict[Place, PairResult]:
    """Each comparison that the study was to make, by the names of its arms and its point."""
    known = {(each.contrast, each.point): each for each in matrix.compared}
    found = {}
    for number, contrast in enumerate(matrix.contrasts):
        arms = matrix.arms[contrast.baseline], matrix.arms[contrast.contender]
        for point in range(len(matrix.points)):
            missing = PairResult(contrast=number, point=point, reason="not recorded")
            found[(*arms, label(matrix, point))] = known.get((number, point), missing)
    return found


def label(matrix: LockedStudy, point: int) -> str:
    return one_line(point_text(matrix.factors, matrix.points[point]), limit=200)


def effects(values: Values, *, between: float = 0.0) -> Effects:
    return Effects(
        metric=values.name,
        layouts=between,
        ratios=tuple(b / a for a, b in zip(values.baseline, values.contender, strict=True)),
    )


def item(metric: str, place: Place) -> str:
    baseline, contender, at = place
    return f"{metric}: {contender} / {baseline}" + (f" at {at}" if at else "")


# --- ratios -------------------------------------------------------------------------------------------------


def _ratios(first: LockedStudy, second: LockedStudy) -> Iterator[Compared]:
    found = results(first), results(second)
    sides = [
        [
            (place, effects(pair.primary, between=layouts.of_lock(pair.layout_deviation)))
            for place, pair in each.items()
            if pair.primary is not None and not pair.has_diverged
        ]
        for each in found
    ]
    changes = change.between(*sides, margin=first.prove.margin, confidence=first.prove.confidence)
    known = {(each.baseline, each.contender, each.label): each for each in changes.found}
    for place in dict.fromkeys((*found[0], *found[1])):
        if (one := known.get(place)) is not None:
            yield Compared(
                item=item(dict(sides[0])[place].metric, place),
                first=f"{one.first:.4f}",
                second=f"{one.second:.4f}",
                equal=_EQUAL.get(one.verdict or one.comparison.verdict),
                text=_said(one.verdict or one.comparison.verdict, one.comparison),
            )
        else:
            yield _uncompared(place, *(each.get(place) for each in found))


def _uncompared(place: Place, first: PairResult | None, second: PairResult | None) -> Compared:
    """Two results of which at least one has no ratio, or another metric."""
    states = [_state(each) for each in (first, second)]
    primary = next((each.primary for each in (first, second) if each is not None and each.primary), None)
    return Compared(
        item=item(primary.name if primary is not None else "comparison", place),
        first=states[0],
        second=states[1],
        # What neither has is no difference, and shows nothing.
        equal=None if states[0] == states[1] else False,
    )


def _state(pair: PairResult | None) -> str:
    if pair is None:
        return "not in the study"
    if pair.has_diverged:
        return "the training diverged"
    if pair.primary is None:
        return "not measured"
    return f"measured {one_line(pair.primary.name, limit=50)}"


def _said(verdict: Verdict, compared: Comparison) -> str:
    interval = f"[{compared.low:.4f}, {compared.high:.4f}]"
    interval = TOO_FEW_RUNS if compared.has_too_few_runs else interval
    return (
        f"{verdict} at {compared.margin:.1%}: second / first {compared.ratio:.4f}, "
        f"{compared.confidence:.0%} interval {interval}, "
        f"p = {compared.equivalence_p:.2g}"
    )


# --- values -------------------------------------------------------------------------------------------------


def _values(
    first: LockedStudy, second: LockedStudy, tolerances: Tolerances
) -> tuple[list[Compared], list[bool | None], list[str]]:
    """The values of each arm: the comparisons, what of them is judged, and the others that differ."""
    found = _levels(first), _levels(second)
    margin, confidence = first.prove.margin, first.prove.confidence
    made = {
        level: compare_means(
            *([math.log(value) for value in each[level][1]] for each in found),
            margin=tolerances.own.get(level[2], margin),
            confidence=confidence,
        )
        for level in found[0]
        if level in found[1]
    }
    # What is judged is a family of its own: what is only shown takes no power from it.
    verdicts: dict[_Level, Verdict] = {}
    for is_judged in (True, False):
        family = [level for level in made if (level[2] in tolerances.own) is is_judged]
        corrected = families.corrected([made[level] for level in family])
        verdicts |= {level: verdict for level, (_, _, verdict) in zip(family, corrected, strict=True)}
    compared, judged, changed = [], [], []
    for level in dict.fromkeys((*found[0], *found[1])):
        arm, at, metric = level
        name = f"{metric} of {arm}" + (f" at {at}" if at else "")
        is_judged = metric in tolerances.own
        if level in made:
            equal = _EQUAL.get(verdicts[level])
            text = _said(verdicts[level], made[level])
        else:
            equal, text = False, ""
        if is_judged:
            judged.append(equal)
        elif equal is False:
            changed.append(name)
        compared.append(
            Compared(
                item=name,
                first=_mean(found[0].get(level)),
                second=_mean(found[1].get(level)),
                equal=equal if is_judged else None,
                text=text,
            )
        )
    return compared, judged, changed


def _levels(matrix: LockedStudy) -> Mapping[_Level, tuple[str, tuple[float, ...]]]:
    """The values of each arm, point and metric, with their unit. Of an arm in several comparisons the first
    counts."""
    found: dict[_Level, tuple[str, tuple[float, ...]]] = {}
    for (baseline, contender, at), pair in results(matrix).items():
        for each in pair.metrics:
            name = one_line(each.name, limit=100)
            found.setdefault((baseline, at, name), (each.unit, each.baseline))
            found.setdefault((contender, at, name), (each.unit, each.contender))
    return found


def _mean(level: tuple[str, tuple[float, ...]] | None) -> str:
    if level is None:
        return "not measured"
    unit, values = level
    return f"{geometric_mean(values):.6g} {unit}".rstrip()
