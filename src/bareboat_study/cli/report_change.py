"""bareboat report A B: what differs between two studies, and how the ratios of their arms changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base.errors import UsageError
from bareboat_study.cli import diff
from bareboat_study.numbers import ratio_and_interval
from bareboat_study.report_values import Table

if TYPE_CHECKING:
    from bareboat_study.change import Changes, Effects, Place
    from bareboat_study.reproduction.difference import Difference
    from bareboat_study.reproduction.document import Lock
    from bareboat_study.study_report import StudyReport


def run(context: Context, first: StudyReport, second: StudyReport) -> int:
    """Compare the primary metric of two studies, point by point."""
    from bareboat_study import change

    prove = first.matrix.prove
    found = change.between(
        _effects(first), _effects(second), margin=prove.margin, confidence=prove.confidence
    )
    if not found.found and not found.other_metric and not found.unusable:
        raise UsageError(
            f"{first.matrix.id} and {second.matrix.id} have no comparison in common",
            context="\n".join(_missing(found)),
            remedy="compare studies with the same names of arms and the same values of factors",
        )
    locks, differences = _origins(context, first, second)
    if context.options.json:
        console.result_json(
            {"first": locks[0].name, "second": locks[1].name, "differences": differences, "changes": found}
        )
        return 0
    console.result(diff.text(*locks, differences))
    for line in lines(found, prove.confidence):
        console.result(line)
    return 0


def _effects(shown: StudyReport) -> list[tuple[Place, Effects]]:
    from bareboat_study import change
    from bareboat_study.change import Effects

    return [
        (
            (contrast.baseline, contrast.contender, point.label),
            Effects(
                metric=point.analysis.primary.name,
                unusable=bool(point.analysis.unusable),
                layouts=point.analysis.between,
                ratios=change.balanced(point.analysis.primary),
            ),
        )
        for contrast in shown.found.contrasts
        for point in contrast.points
        if point.analysis is not None
    ]


def _origins(
    context: Context, first: StudyReport, second: StudyReport
) -> tuple[tuple[Lock, Lock], list[Difference]]:
    """The studies without results; and what differs between them, in any arm that both have, or else in their
    last ones."""
    from bareboat_study.reproduction import difference, making

    maker = making.Maker(context.store, strict=False, say=context.progress.say)
    made = [maker.origins(each.matrix, each.studies[0]) for each in (first, second)]
    context.progress.end()
    common = [(arm, arm) for arm in made[0] if arm in made[1]]
    last = (list(made[0])[-1], list(made[1])[-1])
    found: dict[tuple[str, str, str, str], Difference] = {}
    for one, other in common if last[0] in made[1] else [*common, last]:
        for each in difference.compare(made[0][one], made[1][other]):
            found.setdefault((each.section, each.item, each.first, each.second), each)
    locks = made[0][last[0]], made[1][last[1]]
    return locks, sorted(found.values(), key=lambda each: -each.weight)


def lines(found: Changes, confidence: float) -> Iterator[str]:
    """The ratios in both studies."""
    head = ("", "A", "B", "B / A", f"{confidence:.0%} interval", "verdict")
    for arms, own in itertools.groupby(found.found, key=lambda each: (each.contender, each.baseline)):
        rows = [
            (
                each.label or "the job as it is",
                *(f"{ratio:.4f}" for ratio in (each.first, each.second, each.comparison.ratio)),
                ratio_and_interval(each.comparison)[1],
                str(each.verdict),
            )
            for each in own
        ]
        yield from ("", console.bold(f"{found.metric} of {' / '.join(arms)}"))
        yield from Table(head=head, rows=rows, texts=(0, 4, 5)).terminal(console.width())
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
        ("no result in A or B", found.unusable),
    ):
        for baseline, contender, label in places:
            yield f"{name}: {contender} / {baseline}" + (f" at {label}" if label else "")
