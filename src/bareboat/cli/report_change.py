"""bareboat report A B: what differs between two studies, and how the ratios of their arms changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from bareboat.cli import console, diff
from bareboat.cli.common import Context
from bareboat.cli.report_export import Request
from bareboat.errors import UsageError
from bareboat.model import Matrix

if TYPE_CHECKING:
    from bareboat.reproduction.difference import Difference
    from bareboat.reproduction.document import Lock
    from bareboat.study.change import Changes, Effects, Place

_WIDEST_LABEL = 24


def run(context: Context, names: tuple[str, str], request: Request) -> int:
    """Compare two studies of several arms or points."""
    from bareboat.study import change, matrix

    if request.formats:
        raise UsageError(
            f"--{request.formats[0]} is for one study of several arms or points",
            remedy=f"bareboat report {' '.join(names)}   # on the terminal, or with --json",
        )
    first, second = (matrix.read(context.store, name) for name in names)
    found = change.between(
        _effects(context, first),
        _effects(context, second),
        margin=first.prove.margin,
        confidence=first.prove.confidence,
    )
    if not found.found and not found.other_metric:
        raise UsageError(
            f"{names[0]} and {names[1]} have no comparison in common",
            context="\n".join(_missing(found)),
            remedy="compare studies with the same names of arms and the same values of factors",
        )
    locks, differences = _origins(context, first, second)
    if context.options.json:
        console.result_json(
            {"first": names[0], "second": names[1], "differences": differences, "changes": found}
        )
        return 0
    console.result(diff.text(*locks, differences))
    for line in lines(found, first.prove.confidence):
        console.result(line)
    return 0


def _effects(context: Context, found: Matrix) -> list[tuple[Place, Effects]]:
    from bareboat.study import findings, matrix
    from bareboat.study.change import Effects

    result = findings.find(
        found, matrix.points(context.store, found), matrix.read_records(context.store, found)
    )
    return [
        (
            (contrast.baseline, contrast.contender, point.label),
            Effects(
                metric=point.analysis.primary.name,
                ratios=tuple(map(math.exp, point.analysis.primary.effects)),
            ),
        )
        for contrast in result.contrasts
        for point in contrast.points
        if point.analysis is not None
    ]


def _origins(context: Context, first: Matrix, second: Matrix) -> tuple[tuple[Lock, Lock], list[Difference]]:
    """The studies without results; and what differs between them, in any arm that both have."""
    from bareboat.reproduction import difference

    made = [_of_arms(context, each) for each in (first, second)]
    context.progress.end()
    common = [arm for arm in made[0] if arm in made[1]]
    found: dict[tuple[str, str, str, str], Difference] = {}
    for arm in common:
        for each in difference.compare(made[0][arm], made[1][arm]):
            found.setdefault((each.section, each.item, each.first, each.second), each)
    locks = tuple(each[common[-1]] for each in made)
    return (locks[0], locks[1]), sorted(found.values(), key=lambda each: -each.weight)


def _of_arms(context: Context, found: Matrix) -> dict[str, Lock]:
    """Arm -> what made the study, by the first point."""
    from bareboat.reproduction import making
    from bareboat.study import matrix

    maker = making.Maker(context.store, strict=False, say=context.progress.say)
    study = matrix.points(context.store, found)[0]
    made = {}
    for arm in study.arms:
        image = next((each for each in found.images if each.digest == arm.image_digest), study.image)
        view = msgspec.structs.replace(study, arms=(arm,), image=image, created_at=found.created_at)
        made[arm.name] = maker.origin(found.id, view)
    return made


def lines(found: Changes, confidence: float) -> Iterator[str]:
    """The ratios in both studies, for a terminal of 80 columns."""
    head = None
    for each in found.found:
        if head != (each.baseline, each.contender):
            head = (each.baseline, each.contender)
            yield ""
            yield console.bold(f"{found.metric} of {each.contender} / {each.baseline}")
            yield f"  {'':<{_WIDEST_LABEL}} {'A':>7} {'B':>7} {'B / A':>7}  {confidence:.0%} interval"
        label = each.label or "the job as it is"
        if len(label) > _WIDEST_LABEL:
            yield f"  {label}"
            label = ""
        compared = each.comparison
        yield (
            f"  {label:<{_WIDEST_LABEL}} {each.first:>7.4f} {each.second:>7.4f} {compared.ratio:>7.4f}  "
            f"[{compared.low:.4f}, {compared.high:.4f}] {each.verdict.removesuffix(' evidence')}"
        )
    if len(found.found) > 1:
        yield f"  corrected for {len(found.found)} comparisons (Holm); intervals are those of single ones"
    missing = list(_missing(found))
    if missing:
        yield ""
        yield from missing


def _missing(found: Changes) -> Iterator[str]:
    for name, places in (
        ("only in A", found.only_first),
        ("only in B", found.only_second),
        ("another primary metric in B", found.other_metric),
    ):
        for baseline, contender, label in places:
            yield f"{name}: {contender} / {baseline}" + (f" at {label}" if label else "")
