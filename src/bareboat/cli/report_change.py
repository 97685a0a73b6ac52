"""bareboat report A B: what differs between two studies, and how the ratios of their arms changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from bareboat.cli import console, diff
from bareboat.cli.common import Context
from bareboat.cli.report_export import Request
from bareboat.model import Matrix
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat.cli.report import Finding
    from bareboat_study.change import Changes, Effects, Place
    from bareboat_study.reproduction.difference import Difference
    from bareboat_study.reproduction.document import Lock

_WIDEST_LABEL = 24


def run(context: Context, names: tuple[str, str], request: Request) -> int:
    """Compare two studies of several arms or points."""
    from bareboat_study import change, matrix

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
    if not found.found and not found.other_metric and not found.diverged:
        raise UsageError(
            f"{names[0]} and {names[1]} have no comparison in common",
            context="\n".join(_missing(found)),
            remedy="compare studies with the same names of arms and the same values of factors",
        )
    shown = [f"{found.metric} of {each.contender} / {each.baseline}" for each in found.found]
    labels = [each.label or "the job as it is" for each in found.found]
    locks, differences = _origins(context, first, second)
    rows = lines(found, list(zip(shown, labels, strict=True)), first.prove.confidence)
    return _show(context, locks, differences, found, rows)


def of_pairs(context: Context, first: Finding, second: Finding) -> int:
    """Compare two studies of one container and bare metal, metric by metric."""
    from bareboat.cli.report_text import NOTE
    from bareboat_study import change
    from bareboat_study.reproduction import difference, making

    studies = (first[0], second[0])
    prove = studies[0].job.prove
    arms = studies[0].arms[0].name, studies[0].arms[1].name
    found = change.of_metrics(arms, first[2], second[2], margin=prove.margin, confidence=prove.confidence)
    maker = making.Maker(context.store, strict=False, say=context.progress.say)
    a, b = (maker.origin(each.id, each) for each in studies)
    context.progress.end()
    contenders = dict.fromkeys(" / ".join(arm.name for arm in reversed(each.arms)) for each in studies)
    title = ", and in B ".join(contenders)
    labels = [
        each.metric if each.unit in ("bytes", "s") else f"{each.metric}, {each.unit}" for each in found.found
    ]
    rows = lines(found, [(title, label) for label in labels], prove.confidence)
    return _show(context, (a, b), difference.compare(a, b), found, [*rows, NOTE])


def _show(
    context: Context,
    locks: tuple[Lock, Lock],
    differences: Sequence[Difference],
    found: Changes,
    rows: Iterable[str],
) -> int:
    if context.options.json:
        console.result_json(
            {"first": locks[0].name, "second": locks[1].name, "differences": differences, "changes": found}
        )
        return 0
    console.result(diff.text(*locks, differences))
    for line in rows:
        console.result(line)
    return 0


def _effects(context: Context, found: Matrix) -> list[tuple[Place, Effects]]:
    from bareboat_study import findings, matrix
    from bareboat_study.change import Effects

    result = findings.find(
        found, matrix.points(context.store, found), matrix.read_records(context.store, found)
    )
    return [
        (
            (contrast.baseline, contrast.contender, point.label),
            Effects(
                metric=point.analysis.primary.name,
                diverged=bool(point.analysis.diverged),
                layouts=point.analysis.between,
                ratios=tuple(map(math.exp, point.analysis.primary.effects)),
            ),
        )
        for contrast in result.contrasts
        for point in contrast.points
        if point.analysis is not None
    ]


def _origins(context: Context, first: Matrix, second: Matrix) -> tuple[tuple[Lock, Lock], list[Difference]]:
    """The studies without results; and what differs between them, in any arm that both have."""
    from bareboat_study.reproduction import difference

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
    from bareboat_study import matrix
    from bareboat_study.reproduction import making

    maker = making.Maker(context.store, strict=False, say=context.progress.say)
    study = matrix.points(context.store, found)[0]
    made = {}
    for arm in study.arms:
        image = next((each for each in found.images if each.digest == arm.image_digest), study.image)
        view = msgspec.structs.replace(study, arms=(arm,), image=image, created_at=found.created_at)
        made[arm.name] = maker.origin(found.id, view)
    return made


def lines(found: Changes, named: Sequence[tuple[str, str]], confidence: float) -> Iterator[str]:
    """The ratios in both studies, for a terminal of 80 columns. `named`: the table's title and the label of
    each change."""
    head = None
    for each, (title, label) in zip(found.found, named, strict=True):
        if head != title:
            head = title
            yield ""
            yield console.bold(title)
            yield f"  {'':<{_WIDEST_LABEL}} {'A':>7} {'B':>7} {'B / A':>7}  {confidence:.0%} interval"
        if len(label) > _WIDEST_LABEL:
            yield f"  {label}"
            label = ""
        compared = each.comparison
        yield (
            f"  {label:<{_WIDEST_LABEL}} {each.first:>7.4f} {each.second:>7.4f} {compared.ratio:>7.4f}  "
            f"[{compared.low:.4f}, {compared.high:.4f}] {each.verdict or ''}"
        ).rstrip()
    if len({(each.baseline, each.contender, each.label) for each in found.found}) > 1:
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
        ("the training diverged", found.diverged),
    ):
        for baseline, contender, label in places:
            yield f"{name}: {contender} / {baseline}" + (f" at {label}" if label else "")
