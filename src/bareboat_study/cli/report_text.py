"""Pure: a study's verdict and metrics as text, for a terminal of any width or a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bareboat_study import definitions
from bareboat_study.numbers import quantity, ratio_and_interval, with_unit
from bareboat_study.report_values import Table

if TYPE_CHECKING:
    from bareboat.model import Study
    from bareboat_study.analysis import Analysis, Goal
    from bareboat_study.measures import Metric

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


def goal_lines(analysis: Analysis, width: int | None) -> list[str]:
    """The results that every run had to reach."""
    runs = len(analysis.primary.baseline)
    return [line for goal in analysis.goals for line in wrapped(_goal(goal, runs), width)]


def comparison_lines(
    study: Study,
    analysis: Analysis,
    width: int | None,
    paint: Callable[[str, str], str] | None = None,
    *,
    sentence: str = "",
) -> list[str]:
    """The verdict and the metrics of two arms. `sentence`: the verdict's, if not that of the analysis."""
    texts = [sentence or analysis.sentence, *analysis.warnings]
    return [*_verdict(texts, analysis.word, width, paint), "", *_table(study, analysis, width)]


def _verdict(
    texts: Sequence[str], word: str, width: int | None, paint: Callable[[str, str], str] | None
) -> list[str]:
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
    """One line per metric where the terminal is wide enough, else a few. The verdict, which is in the
    sentence above, is left out first."""
    metrics = analysis.metrics
    names = [" ".join(arm.name.split()) for arm in study.arms]
    head = ["", *names, "ratio", "interval", "verdict"]
    for is_short, columns in ((False, 6), (True, 6), (True, 5)):
        rows = [_row(analysis, metric, is_short=is_short)[:columns] for metric in metrics]
        lines = Table(head=head[:columns], groups=[rows], texts=_TEXTS).terminal()
        if width is None or max(map(len, lines)) <= width:
            return lines
    return [line for metric in metrics for line in _folded(analysis, metric, names, width or 80)]


def _row(analysis: Analysis, metric: Metric, *, is_short: bool) -> list[str]:
    values = [quantity(mean, metric.unit) for mean in (metric.baseline_mean, metric.contender_mean)]
    name, word = definitions.title(metric, analysis.pairs), analysis.word_of(metric)
    if is_short:
        name = name.removeprefix("throughput, ")
        name = name if metric.unit.endswith("/s") else with_unit(name, metric.unit)
        name = name.replace("processor time per", "CPU per")
        values = [f"{value}/s" if metric.unit.endswith("/s") else value for value in values]
        word = _SHORT.get(word, word)
    else:
        name = with_unit(name, metric.unit)
    ratio, interval = ratio_and_interval(metric.comparison)
    ratio = f"({ratio})" if analysis.unusable else ratio
    return [name, *values, ratio, interval, word]


def _folded(analysis: Analysis, metric: Metric, names: Sequence[str], width: int) -> Iterator[str]:
    name, *values, ratio, interval, word = _row(analysis, metric, is_short=False)
    yield from wrapped(f"{name}: {word}" if word else name, width)
    parts = [f"{arm} {value}" for arm, value in zip(names, values, strict=True)]
    for part in [*parts, f"ratio {ratio} {interval}"]:
        yield from (f"  {line}" for line in wrapped(part, width - 2))


def _goal(goal: Goal, runs: int) -> str:
    lowest = "not reported" if goal.lowest is None else f"lowest {goal.lowest:.4f}"
    if goal.not_numbers:
        lowest = f"not finite in {goal.not_numbers} of {runs} runs"
    reached = "reached" if goal.reached else "NOT reached"
    return f"goal {goal.name} >= {goal.least:g} {reached} by {goal.arm}: {lowest}"
