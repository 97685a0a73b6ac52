"""Pure: a study's verdict and metrics as text, for a terminal of any width or a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bareboat_study.numbers import digits, ratio_and_bounds

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
_RIGHT = (1, 2)


def study_text(
    study: Study, analysis: Analysis, width: int | None, paint: Callable[[str, str], str] | None = None
) -> str:
    """The verdict, the metrics and the goals. `width`: of the terminal; None keeps each sentence on a line.
    `paint`: for a terminal, text and colour -> coloured text; the verdict then has its symbol."""
    lines = _verdict(analysis, width, paint)
    lines += ["", *_table(study, analysis, width)]
    lines += _wrapped(NOTE, width)
    for goal in analysis.goals:
        lines += _wrapped(_goal(goal, len(analysis.primary.baseline)), width)
    return "\n".join(lines)


def _verdict(analysis: Analysis, width: int | None, paint: Callable[[str, str], str] | None) -> list[str]:
    texts = [analysis.sentence, *analysis.warnings]
    if paint is None:
        return [line for text in texts for line in _wrapped(text, width)]
    symbol, colour = SIGNS[analysis.word]
    first, *rest = _wrapped(f"{symbol} {texts[0]}", width)
    verdict, colon, more = first.partition(":")
    lines = [paint(paint(verdict, "1"), colour) + colon + more, *rest]
    for warning in texts[1:]:
        lines += [paint(line, "33") for line in _wrapped(f"! {warning}", width)]
    return lines


def _wrapped(text: str, width: int | None) -> list[str]:
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
    """One line per metric where the terminal is wide enough, else a few."""
    metrics = sorted(analysis.metrics, key=lambda metric: not metric.primary)
    names = [" ".join(arm.name.split()) for arm in study.arms]
    for is_short in (False, True):
        head = ["", *names, "ratio", "interval", "verdict"]
        lines = _columns([head, *(_row(analysis, metric, is_short=is_short) for metric in metrics)])
        if width is None or max(map(len, lines)) <= width:
            return lines
    return [line for metric in metrics for line in _folded(analysis, metric, names, width or 80)]


def _row(analysis: Analysis, metric: Metric, *, is_short: bool) -> list[str]:
    values = [quantity(mean, metric.unit) for mean in (metric.baseline_mean, metric.contender_mean)]
    name, word = metric.name, analysis.word_of(metric)
    if is_short:
        name = name.removeprefix("throughput, ")
        values = [f"{value}/s" if metric.unit.endswith("/s") else value for value in values]
        word = _SHORT.get(word, word)
    elif metric.unit not in ("bytes", "s"):
        name += f", {metric.unit}"
    ratio, low, high = ratio_and_bounds(metric.comparison)
    return [name, *values, ratio, f"[{low}, {high}]", word]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in _RIGHT else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _folded(analysis: Analysis, metric: Metric, names: Sequence[str], width: int) -> Iterator[str]:
    name, *values, ratio, interval, word = _row(analysis, metric, is_short=False)
    yield from _wrapped(f"{name}: {word}" if word else name, width)
    parts = [f"{arm} {value}" for arm, value in zip(names, values, strict=True)]
    for part in [*parts, f"ratio {ratio} {interval}"]:
        yield from (f"  {line}" for line in _wrapped(part, width - 2))


def quantity(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MiB"
    if unit == "s" and value < 1:
        return f"{value * 1000:,.1f} ms"
    return digits(value) + (" s" if unit == "s" else "")


def _goal(goal: Goal, runs: int) -> str:
    lowest = "not reported" if goal.lowest is None else f"lowest {goal.lowest:.4f}"
    if goal.not_numbers:
        lowest = f"not finite in {goal.not_numbers} of {runs} runs"
    reached = "reached" if goal.reached else "NOT reached"
    return f"goal {goal.name} >= {goal.least:g} {reached} by {goal.arm}: {lowest}"
