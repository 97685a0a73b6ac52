"""Pure: the findings of a study as text of 80 columns, and as plain values for JSON."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from bareboat_base.printable import one_line
from bareboat_study import failed_runs
from bareboat_study.analysis import Analysis
from bareboat_study.findings import ContrastFinding, PointFinding, ScalingFinding, StudyFindings
from bareboat_study.measures import Metric
from bareboat_study.numbers import TOO_FEW_RUNS, quantity, with_unit
from bareboat_study.statistics import Verdict

_WIDEST_LABEL = 20
_MOST_FAILURES = 5
_MOST_WARNINGS = 4
_SHORT = {Verdict.DIVERGED: "diverged", None: ""}


def lines(found: StudyFindings) -> Iterator[str]:
    """The tables of a study of several points, below the answer, and the rest."""
    for contrast in found.contrasts:
        if len(contrast.points) > 1:
            yield ""
            yield from table(contrast, found.metric, found.unit)
    yield from (f"  {note}" for note in found.caveats)
    yield from _warnings(found)
    yield from rest(found)


def rest(found: StudyFindings) -> Iterator[str]:
    """The scaling, the failed runs, and how the verdicts are corrected."""
    for each in found.scalings:
        yield ""
        yield from _scaling(each)
    if found.failures:
        yield ""
        yield f"  failed runs: {len(found.failures)}, in no number above"
        shown = failed_runs.lines(found.study, found.failures, most=_MOST_FAILURES)
        yield from (f"  {line}" for line in shown)
    if found.notes:
        yield ""
        for note in found.notes:
            yield from textwrap.wrap(note, 78, initial_indent="  ", subsequent_indent="  ")


def _warnings(found: StudyFindings) -> Iterator[str]:
    """What makes verdicts doubtful, each once, with its points."""
    points: dict[str, list[str]] = {}
    for each in (point for contrast in found.contrasts for point in contrast.points if point.analysis):
        for warning in each.analysis.warnings if each.analysis else ():
            points.setdefault(warning, []).append(each.label)
    if points:
        yield ""
    for warning, labels in itertools.islice(points.items(), _MOST_WARNINGS):
        where = labels[0] + (f" and {len(labels) - 1} more" if len(labels) > 1 else "")
        yield from textwrap.wrap(f"! {where}: {warning}", 78, initial_indent="  ", subsequent_indent="    ")
    if len(points) > _MOST_WARNINGS:
        yield f"  ! {len(points) - _MOST_WARNINGS} more warnings: bareboat report {found.study} -o PAGE.html"


def table(contrast: ContrastFinding, metric: str, unit: str) -> Iterator[str]:
    """The primary metric at every point."""
    label = with_unit(metric, unit)
    label = f"{metric}, 1/s" if len(label) > _WIDEST_LABEL and unit.endswith("/s") else label
    arms = (one_line(contrast.baseline, limit=11), one_line(contrast.contender, limit=11))
    yield f"  {one_line(label, limit=_WIDEST_LABEL):<20} {arms[0]:>11} {arms[1]:>11}  ratio  interval"
    for point in contrast.points:
        if point.analysis is None:
            yield f"  {point.label}: {point.reason}"
        else:
            yield from _row(point.label, point.analysis, point.verdict)


def _row(label: str, analysis: Analysis, verdict: Verdict | None) -> Iterator[str]:
    metric = analysis.primary
    if len(label) > _WIDEST_LABEL:  # a line of its own
        yield f"  {label}"
        label = ""
    compared = metric.comparison
    means = [quantity(mean, metric.unit) for mean in (metric.baseline_mean, metric.contender_mean)]
    word = _SHORT.get(verdict, str(verdict))
    ratio = f"({_ratio(compared.ratio)})" if analysis.unusable else f" {_ratio(compared.ratio)} "
    interval = f"[{_ratio(compared.low)}, {_ratio(compared.high)}]"
    interval = TOO_FEW_RUNS if compared.has_too_few_runs else interval
    yield f"  {label:<20} {means[0]:>11} {means[1]:>11} {ratio} {interval} {word}".rstrip()


def _scaling(found: ScalingFinding) -> Iterator[str]:
    yield f"  scaling of {found.arm}" + (f" at {found.at}" if found.at else "")
    yield f"  {'workers':>9}  {'speed-up':>8}  {'interval':<16}  {'efficiency':>10}  interval"
    for each in found.speed_ups:
        first = each.workers == found.speed_ups[0].workers
        spread = "" if first else f"[{each.low:.2f}, {each.high:.2f}]"
        share = "" if first else f"[{each.efficiency_low:.1%}, {each.efficiency_high:.1%}]"
        yield (
            f"  {each.workers:>9g}  {each.speed_up:>8.2f}  {spread:<16}  {each.efficiency:>10.1%}  {share}"
        ).rstrip()


def _ratio(value: float) -> str:
    """Five characters for ratios near 1."""
    return f"{value:.3f}" if value < 10 else f"{value:.2f}" if value < 100 else f"{value:.3g}"


# --------------------------------------------------------------------------------------------------
# JSON.


def values(found: StudyFindings) -> dict[str, Any]:
    """The findings without the raw records, for JSON."""
    return {
        "study": found.study,
        "sentences": found.sentences,
        "metric": found.metric,
        "unit": found.unit,
        "higher_is_better": found.higher_is_better,
        "runs_left": found.missing,
        "contrasts": [_contrast(each) for each in found.contrasts],
        "scalings": found.scalings,
        "failures": found.failures,
        "notes": found.notes,
    }


def _contrast(found: ContrastFinding) -> dict[str, Any]:
    return {
        "baseline": found.baseline,
        "contender": found.contender,
        "effect": found.contrast.effect,
        **{verdict.name.lower(): found.count(verdict) for verdict in Verdict},
        "points": [_point(each) for each in found.points],
    }


def _point(found: PointFinding) -> dict[str, Any]:
    metrics: Sequence[Metric] = found.analysis.metrics if found.analysis else ()
    equal_p, differ_p = found.analysis.p_values if found.analysis else (None, None)
    return {
        "point": found.point,
        "label": found.label,
        "verdict": found.verdict,
        "equivalence_p": equal_p,
        "difference_p": differ_p,
        "reason": found.reason,
        "sentence": found.analysis.sentence if found.analysis else "",
        "warnings": found.analysis.warnings if found.analysis else (),
        "notes": found.analysis.notes if found.analysis else (),
        "censored": found.analysis.censored if found.analysis else None,
        "goals": found.analysis.goals if found.analysis else (),
        "diverged": found.analysis.diverged if found.analysis else (),
        "metrics": metrics,
    }
