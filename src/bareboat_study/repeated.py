"""Pure: equal studies, such as the same job measured on ten days: one pooled ratio of each metric."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bareboat.model import Contrast, Study
from bareboat_base.errors import UsageError
from bareboat_study import text
from bareboat_study.analysis import Analysis
from bareboat_study.change import BETWEEN_STUDIES, between_studies
from bareboat_study.findings import ContrastFinding, PointFinding, pooled_of, sentence
from bareboat_study.layouts import DEVIATION
from bareboat_study.pooling import LEAST_POINTS, Pooled

_NOTE = (
    "Pooled: the mean over the studies by a random-effects model (REML, interval of Hartung and Knapp, never "
    "narrower than the normal one). tau is the deviation of the true ratios between studies, at least "
    f"{BETWEEN_STUDIES:.1%}, and {DEVIATION:.0%} where the layouts of files in the page cache were kept. No "
    f"verdict below {LEAST_POINTS} studies. The verdicts of single studies are not corrected for their "
    "number."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledMetric:
    """A metric that all studies have, the primary one first; only that one has a verdict."""

    metric: str
    unit: str
    primary: bool
    pooled: Pooled


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Equal studies as the points of one. `metrics`: pooled over the studies whose ratios are results."""

    sentence: str
    contrast: ContrastFinding
    metrics: tuple[PooledMetric, ...]


def pool(found: Sequence[tuple[Study, Analysis]]) -> Repeated:
    """Pool the ratios of equal studies, each with its verdict.

    Raises UsageError for studies that differ in more than time and machine, and for fewer than two whose
    ratios are results.
    """
    for first, second in pairwise(found):
        _check(first, second)
    study, analysis = found[0]
    prove, primary = study.job.prove, analysis.primary
    measured = [each for _, each in found if not each.unusable]
    between = between_studies(*(each.between for each in measured)) if measured else 0.0
    metrics = []
    for metric in analysis.metrics:
        same = [
            each
            for one in measured
            for each in one.metrics
            if (each.name, each.unit) == (metric.name, metric.unit)
        ]
        if len(same) == len(measured) and (pooled := pooled_of(same, prove, between=between)) is not None:
            metrics.append(
                PooledMetric(metric=metric.name, unit=metric.unit, primary=metric is primary, pooled=pooled)
            )
    if not metrics:
        raise UsageError(
            "; ".join(f"{each.study}: {each.unusable}" for _, each in found if each.unusable),
            remedy="pool at least two studies that are complete, and whose training did not diverge",
        )
    names = {each.job.name for each, _ in found}
    contrast = ContrastFinding(
        contrast=Contrast(baseline=0, contender=1),
        baseline=study.arms[0].name,
        contender=study.arms[1].name,
        points=tuple(
            PointFinding(
                point=number,
                label=each.whole.removeprefix(f"{each.job.name}-") if len(names) == 1 else each.whole,
                study=each,
                analysis=analysed,
                verdict=analysed.verdict,
            )
            for number, (each, analysed) in enumerate(found)
        ),
        pooled=metrics[0].pooled,
    )
    return Repeated(
        sentence=sentence(prove, contrast, place="in", places="studies"),
        contrast=contrast,
        metrics=tuple(metrics),
    )


def _check(first: tuple[Study, Analysis], second: tuple[Study, Analysis]) -> None:
    """Raise UsageError unless both measured the same; machine, paths, seed and repeats may differ."""
    one, other = (dict(_design(*each)) for each in (first, second))
    for what in one:
        if one[what] != other[what]:
            raise UsageError(
                f"{first[0].whole} and {second[0].whole} differ in their {what}",
                remedy="pool studies of the same job and the same arms",
            )
    if first[0].id == second[0].id:
        raise UsageError(f"{first[0].whole} is given twice", remedy="name each study once")


def _design(study: Study, analysis: Analysis) -> Iterator[tuple[str, object]]:
    job, primary = study.job, analysis.primary
    yield "command", job.command
    yield "topology", job.topology
    yield "environment variables", job.environment
    yield "image", job.image
    yield "arms", [(arm.name, arm.engine) for arm in study.arms]
    yield "primary metric", (primary.name, primary.unit)
    yield "margin", job.prove.margin
    yield "confidence", job.prove.confidence


def lines(found: Repeated) -> Iterator[str]:
    """The tables below the answer, for a terminal of 80 columns."""
    primary, *others = found.metrics
    yield from text.table(found.contrast, primary.metric, primary.unit, "studies")
    if others:
        yield ""
        yield "  secondary metrics"
    for each in others:
        yield from text.pooled_lines(f"{each.metric}, pooled", each.pooled, "studies")
    for point in found.contrast.points:
        assert point.analysis is not None
        prove, complete = point.study.job.prove, len(point.analysis.pairs)
        if point.analysis.unusable:
            yield f"  {point.label}: not pooled, because {point.analysis.unusable}"
        elif complete < prove.repeats and prove.quick is not True:
            yield f"  {point.label}: {complete} of {prove.repeats} runs are complete"
    yield ""
    yield from textwrap.wrap(_NOTE, 78, initial_indent="  ", subsequent_indent="  ")
