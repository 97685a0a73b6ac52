"""Pure: what differs between two locks, also of studies, ranked as for runs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bareboat.model.matrix import Value, shown
from bareboat_base.printable import counted, one_line
from bareboat_study.reproduction import difference
from bareboat_study.reproduction.difference import NOTHING, Difference, Weight, ratio_of
from bareboat_study.reproduction.document import Lock, LockedStudy, PairResult, Results
from bareboat_study.reproduction.study_comparison import effects, item, label, results
from bareboat_study.reproduction.study_retrieval import view_of
from bareboat_study.statistics import geometric_mean
from bareboat_study.turns import seed_text

#: The number of an arm and of a point in both studies.
_Common = tuple[tuple[int, int], tuple[int, int]]


def compare(first: Lock, second: Lock) -> list[Difference]:
    """All differences, what explains most first, and the results last."""
    a, b = first.study, second.study
    if a is None and b is None:
        return difference.compare(first, second)
    if a is None or b is None:
        kinds = ["one run" if each is None else _size(each) for each in (a, b)]
        other = difference.differ(
            "design", "kind", kinds[0], kinds[1], Weight.STRONG, "of the arms only the last one is compared"
        )
        found = [*other, *difference.compare(first, second)]
    else:
        found = [*_design(a, b), *_arms(first, second, a, b), *_results(a, b)]
    return sorted(found, key=lambda each: -each.weight)


def _size(matrix: LockedStudy) -> str:
    return f"{len(matrix.arms)} arms at {counted(len(matrix.points), 'point')}"


def _design(first: LockedStudy, second: LockedStudy) -> Iterator[Difference]:
    a, b = first.prove, second.prove
    for name, x, y, weight, reason in (
        ("arms", first.arms, second.arms, Weight.STRONG, "other comparisons"),
        ("factors", first.factors, second.factors, Weight.STRONG, "other comparisons"),
        ("points", _points(first), _points(second), Weight.STRONG, "other comparisons"),
        ("comparisons", _pairs(first), _pairs(second), Weight.STRONG, "other comparisons"),
        ("metrics", _metrics(first), _metrics(second), Weight.STRONG, "other numbers"),
        ("goals", _texts(a.goals), _texts(b.goals), Weight.UNLIKELY, "what counts as reached"),
        ("seconds of a window", a.window_s, b.window_s, Weight.POSSIBLE, "noise of the measurement"),
        ("repeats", first.repeats, second.repeats, Weight.POSSIBLE, "width of the intervals"),
        ("margin", a.margin, b.margin, Weight.POSSIBLE, "what counts as equivalent"),
        ("confidence", a.confidence, b.confidence, Weight.POSSIBLE, "width of the intervals"),
        ("seed", seed_text(a.seed), seed_text(b.seed), Weight.UNLIKELY, "the order of the runs"),
    ):
        yield from difference.differ("design", name, x, y, weight, reason)


def _points(matrix: LockedStudy) -> tuple[str, ...]:
    return tuple(label(matrix, point) for point in range(len(matrix.points)))


def _pairs(matrix: LockedStudy) -> tuple[str, ...]:
    return tuple(f"{matrix.arms[each.contender]} / {matrix.arms[each.baseline]}" for each in matrix.contrasts)


def _metrics(matrix: LockedStudy) -> tuple[str, ...]:
    """How each number is read, without the places of files, which are those of a site."""
    return tuple(
        f"{each.name}: {each.pattern or each.series or each.key} ({each.take}, {each.better} is better"
        f"{', primary' if each.primary else ''})"
        for each in matrix.metrics[0]
    )


def _texts(values: dict[str, float]) -> tuple[str, ...]:
    return tuple(f"{name} {value:g}" for name, value in sorted(values.items()))


def _arms(first: Lock, second: Lock, a: LockedStudy, b: LockedStudy) -> Iterator[Difference]:
    """What differs between the jobs of arms and points that both have, each difference once, with the arms
    where it is not in all of them."""
    common = list(_common(a, b))
    found: dict[Difference, list[_Common]] = {}
    for place in common:
        views = [
            msgspec.structs.replace(view_of(lock, matrix, matrix.cells[point][arm]), results=Results())
            for lock, matrix, (arm, point) in zip((first, second), (a, b), place, strict=True)
        ]
        for each in difference.compare(*views):
            found.setdefault(each, []).append(place)
    if common:
        yield from difference.of_data(first, second)
    for each, places in found.items():
        if len(places) == len(common):
            yield each
            continue
        where = _where(a, common, places)
        yield msgspec.structs.replace(each, reason=f"{each.reason}; {where}" if each.reason else where)


def _where(matrix: LockedStudy, common: list[_Common], places: list[_Common]) -> str:
    """The arms and points of a difference, in words."""
    arms = sorted({arm for (arm, _), _ in places})
    names = ", ".join(one_line(matrix.arms[arm], limit=40) for arm in arms)
    whole = [place for place in common if place[0][0] in arms]
    if len(whole) == len(places):
        return f"only in {'arm' if len(arms) == 1 else 'arms'} {names}"
    points = {point for (_, point), _ in places}
    return f"only in {names} at {counted(len(points), 'point')}, such as {label(matrix, min(points))}"


def _common(a: LockedStudy, b: LockedStudy) -> Iterator[_Common]:
    """Arms of one name at points of equal values."""
    points = {_key(b, point): point for point in range(len(b.points))}
    for point in range(len(a.points)):
        if (other := points.get(_key(a, point))) is None:
            continue
        for number, arm in enumerate(a.arms):
            if arm in b.arms:
                yield (number, point), (b.arms.index(arm), other)


def _key(matrix: LockedStudy, point: int) -> tuple[tuple[str, str], ...]:
    values: list[tuple[str, Value]] = list(zip(matrix.factors, matrix.points[point], strict=True))
    return tuple(sorted((name, shown(value)) for name, value in values))


def _results(a: LockedStudy, b: LockedStudy) -> Iterator[Difference]:
    found = results(a), results(b)
    for place in dict.fromkeys((*found[0], *found[1])):
        pairs = [each.get(place) for each in found]
        if None in pairs:  # the designs differ, which is said
            continue
        x, y = (_pair_text(each) for each in pairs if each is not None)
        primary = next((each.primary for each in pairs if each is not None and each.primary), None)
        name = item(one_line(primary.name, limit=60) if primary is not None else "comparison", place)
        reason = ratio_of(*(_ratio(each) for each in pairs))
        yield from difference.differ("results", name, x, y, Weight.RESULT, reason)
    failed = [counted(len(each.failed), "run") if each.failed else NOTHING for each in (a, b)]
    yield from difference.differ("results", "failed", failed[0], failed[1], Weight.RESULT, "")


def _pair_text(pair: PairResult) -> str:
    value = _ratio(pair)
    return f"not measured: {pair.reason}" if value is None else f"{value:.6f}, {pair.verdict}"


def _ratio(pair: PairResult | None) -> float | None:
    if pair is None or pair.primary is None:
        return None
    return geometric_mean(effects(pair.primary).ratios)
