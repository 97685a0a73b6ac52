"""Pure: the findings of a study as text, for a terminal or a pipe, and as plain values for JSON."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bareboat.model import Study
from bareboat_study import arm_differences, definitions, report_tables, validity
from bareboat_study.analysis import Analysis, Goal
from bareboat_study.findings import ContrastFinding, PointFinding, ScalingFinding, StudyFindings
from bareboat_study.measures import Metric
from bareboat_study.numbers import quantity, ratio_and_interval, with_unit
from bareboat_study.report_values import Table
from bareboat_study.statistics import Verdict

#: Of each verdict on a terminal: its symbol and its colour (SGR).
SIGNS = {
    "equivalent": ("✔", "32"),
    "different": ("≠", "33"),
    "undecided": ("?", "33"),
    "too noisy": ("?", "33"),
    "incomplete": ("…", "33"),
    "training diverged": ("✘", "31"),
}
NOTE = "Geometric means. The first row is the primary metric, the others are secondary."
_SHORT = {"training diverged": "diverged"}
_TEXTS = (0, 3, 4, 5)
_MOST_FAILURES = 5
_MOST_WARNINGS = 4
_Paint = Callable[[str, str], str] | None


def study_lines(found: StudyFindings, width: int | None, paint: _Paint = None) -> Iterator[str]:
    """The answer and the tables; at one point, comparison by comparison."""
    if any(len(contrast.points) > 1 for contrast in found.contrasts):
        for sentence in found.sentences:
            lines = wrapped(sentence, width)
            yield from lines if paint is None else (paint(line, "1") for line in lines)
        yield from _points(found, width)
        return
    known: list[Analysis] = []
    for contrast, sentence in zip(found.contrasts, found.sentences, strict=True):
        (point,) = contrast.points
        if point.analysis is None:
            yield from wrapped(sentence, width)
            continue
        known.append(point.analysis)
        yield from comparison_lines(point.study, point.analysis, width, paint, sentence=sentence)
        if len(found.contrasts) > 1:
            yield ""
    if known:
        for note in (NOTE, *found.caveats):
            yield from wrapped(note, width)
        if len(known) == 1 and arm_differences.is_same(point.study):
            yield from wrapped(arm_differences.sentence(point.study), width)
        yield from dict.fromkeys(line for each in known for line in goal_lines(each, width))
    yield from _rest(found)


def _points(found: StudyFindings, width: int | None) -> Iterator[str]:
    """A table of the points for each contrast, below the answer, and the rest."""
    for contrast in found.contrasts:
        yield ""
        if len(found.contrasts) > 1:
            yield f"{contrast.contender} / {contrast.baseline}"
        yield from report_tables.points(found, [contrast]).terminal(width)
    yield from (f"  {note}" for note in found.caveats)
    yield from _warnings(found)
    yield from _rest(found)


def _rest(found: StudyFindings) -> Iterator[str]:
    """The scaling, the failed runs, and how the verdicts are corrected."""
    for each in found.scalings:
        yield ""
        yield from _scaling(each)
    if found.failures:
        yield ""
        yield f"  failed runs: {len(found.failures)}, in no number above"
        shown = validity.failure_lines(found.study, found.failures, most=_MOST_FAILURES)
        yield from (f"  {line}" for line in shown)
    if found.notes:
        yield ""
        for note in found.notes:
            yield from textwrap.wrap(note, 78, initial_indent="  ", subsequent_indent="  ")


def _warnings(found: StudyFindings) -> Iterator[str]:
    """What makes verdicts doubtful, each once, with its points."""
    points: dict[str, list[str]] = {}
    for each in (point for contrast in found.contrasts for point in contrast.points):
        for warning in each.analysis.warnings if each.analysis else ():
            points.setdefault(warning, []).append(each.label)
    if points:
        yield ""
    for warning, labels in itertools.islice(points.items(), _MOST_WARNINGS):
        where = labels[0] + (f" and {len(labels) - 1} more" if len(labels) > 1 else "")
        yield from textwrap.wrap(f"! {where}: {warning}", 78, initial_indent="  ", subsequent_indent="    ")
    if len(points) > _MOST_WARNINGS:
        yield f"  ! {len(points) - _MOST_WARNINGS} more warnings: bareboat report {found.study} -o PAGE.html"


def _scaling(found: ScalingFinding) -> Iterator[str]:
    yield f"  scaling of {found.arm}" + (f" at {found.at}" if found.at else "")
    rows = []
    for each in found.speed_ups:
        first = each.workers == found.speed_ups[0].workers
        spread = "" if first else f"[{each.low:.2f}, {each.high:.2f}]"
        share = "" if first else f"[{each.efficiency_low:.1%}, {each.efficiency_high:.1%}]"
        rows.append((f"{each.workers:g}", f"{each.speed_up:.2f}", spread, f"{each.efficiency:.1%}", share))
    head = ("workers", "speed-up", "interval", "efficiency", "interval")
    yield from (f"  {line}" for line in Table(head=head, rows=rows, texts=(2, 4)).terminal())


# --------------------------------------------------------------------------------------------------
# Two arms at one point.


def goal_lines(analysis: Analysis, width: int | None) -> list[str]:
    """The results that every run had to reach."""
    runs = len(analysis.primary.baseline)
    return [line for goal in analysis.goals for line in wrapped(_goal(goal, runs), width)]


def comparison_lines(
    study: Study, analysis: Analysis, width: int | None, paint: _Paint = None, *, sentence: str = ""
) -> list[str]:
    """The verdict and the metrics of two arms. `sentence`: the verdict's, if not that of the analysis."""
    texts = [sentence or analysis.sentence, *analysis.warnings]
    return [*_verdict(texts, analysis.verdict.value, width, paint), "", *_table(study, analysis, width)]


def _verdict(texts: Sequence[str], word: str, width: int | None, paint: _Paint) -> list[str]:
    if paint is None:
        return [line for text in texts for line in wrapped(text, width)]
    symbol, colour = SIGNS[word]
    first, *rest = wrapped(f"{symbol} {texts[0]}", width)
    verdict, colon, more = first.partition(":")
    lines = [paint(paint(verdict, "1"), colour) + colon + more, *rest]
    for warning in texts[1:]:
        lines += [paint(line, "33") for line in wrapped(f"! {warning}", width)]
    return lines


def wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    lines = textwrap.wrap(
        text.replace(" %", "\0%"),  # a number stays with its unit
        max(width, 40),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def _table(study: Study, analysis: Analysis, width: int | None) -> list[str]:
    """The verdict, which is in the sentence above, is left out where the terminal is too narrow."""
    names = [" ".join(arm.name.split()) for arm in study.arms]
    rows = [_row(analysis, metric) for metric in analysis.metrics]
    head = ("", *names, "ratio", "interval", "verdict")
    lines = Table(head=head, rows=rows, texts=_TEXTS).terminal(width)
    if len(lines) > 1 + len(rows):
        lines = Table(head=head[:-1], rows=[row[:-1] for row in rows], texts=_TEXTS).terminal(width)
    return lines


def _row(analysis: Analysis, metric: Metric) -> list[str]:
    """The names are short, so that the table fits into 80 columns."""
    values = [quantity(mean, metric.unit) for mean in (metric.baseline_mean, metric.contender_mean)]
    name, word = definitions.title(metric, analysis.pairs), analysis.word_of(metric)
    if metric.unit.endswith("/s"):
        name, values = name.removeprefix("throughput, "), [f"{value}/s" for value in values]
    else:
        name = with_unit(name, metric.unit).replace("processor time per", "CPU per")
    ratio, interval = ratio_and_interval(metric.comparison)
    ratio = f"({ratio})" if analysis.unusable else ratio
    return [name, *values, ratio, interval, _SHORT.get(word, word)]


def _goal(goal: Goal, runs: int) -> str:
    lowest = "not reported" if goal.lowest is None else f"lowest {goal.lowest:.4f}"
    if goal.not_numbers:
        lowest = f"not finite in {goal.not_numbers} of {runs} runs"
    reached = "reached" if goal.reached else "NOT reached"
    return f"goal {goal.name} >= {goal.least:g} {reached} by {goal.arm}: {lowest}"


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
    known = found.analysis
    equal_p, differ_p = known.p_values if known else (None, None)
    lists = ("warnings", "notes", "goals", "diverged", "metrics")
    return {
        "point": found.point,
        "label": found.label,
        "verdict": found.verdict,
        "equivalence_p": equal_p,
        "difference_p": differ_p,
        "reason": found.reason,
        "sentence": known.sentence if known else "",
        "censored": known.censored if known else None,
        **{name: getattr(known, name) if known else () for name in lists},
    }
