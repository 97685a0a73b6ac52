"""Forest plots: a row for each ratio, with its name left of the axis; below it, the numbers that decide."""

from __future__ import annotations

import itertools
import statistics as descriptive
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from bareboat.model import ProveRequest, Study
from bareboat_study.analysis import Analysis
from bareboat_study.drawing import (
    BAND,
    INK,
    MUTED,
    Drawing,
    folded,
    interval,
    logs_of,
    margin_logs,
    ratio_axis,
    safe_log,
)
from bareboat_study.findings import ContrastFinding
from bareboat_study.numbers import interval_text, percent
from bareboat_study.statistics import Comparison, Estimate, Verdict

#: Characters of a line of a name, and of the whole name.
_NAME_LINE, _NAME = 20, 40
_LINE_IN, _GAP_IN = 0.15, 0.09
#: The axis is narrow, between names and numbers.
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`found`: the ratio; None where there is none. `decides`: whether a verdict follows from it; its
    interval then has a thick part, that of the test of equivalence. `text`: its numbers; `filled`: its
    diamond."""

    name: str
    found: Estimate | None
    text: str
    decides: bool
    filled: bool

    @property
    def logs(self) -> tuple[float, float, float]:
        return (0.0, 0.0, 0.0) if self.found is None else logs_of(self.found)

    @property
    def lines(self) -> list[str]:
        """The name, and the numbers that decide."""
        return [*folded(self.name, _NAME, _NAME_LINE), *([self.text] if self.decides else [])]


def of_metrics(study: Study, analysis: Analysis) -> Drawing:
    """A row for each metric of two arms: first the one that decides, then those for information."""
    rows = [
        Row(
            name=metric.name, found=metric.comparison, text=interval_text(metric, analysis),
            decides=metric.primary, filled=metric.primary,
        )
        for metric in analysis.metrics
    ]  # fmt: skip
    c = analysis.comparison
    caption = (
        f"Ratio with its {percent(c.confidence)} confidence interval, one value per run; the shaded band is "
        f"the margin of ±{c.margin * 100:g} %. {_thick(c.confidence)} {_BEYOND} "
        "All numbers are in the table."
    )
    names = f"{study.arms[1].name} / {study.arms[0].name}"
    axis = f"{c.runs} runs, margin ±{c.margin * 100:g} %: {names}"
    return _drawing("ratios", "Ratio of every metric", caption, axis, rows, c.margin)


def of_comparisons(found: Sequence[tuple[str, Analysis]]) -> Drawing:
    """A row for each comparison of two arms, by the primary metric."""
    rows = [
        Row(
            name=name, found=each.comparison, text=interval_text(each.primary, each), decides=True,
            filled=each.verdict is Verdict.EQUIVALENT,
        )
        for name, each in found
    ]  # fmt: skip
    c, metric = found[0][1].comparison, found[0][1].primary
    sense = "higher" if metric.higher_is_better else "lower"
    caption = (
        f"Ratio of the {metric.name} in each comparison with its {percent(c.confidence)} interval; {sense} "
        f"is better. Filled: equivalent within ±{c.margin * 100:g} %, the shaded band. "
        f"{_thick(c.confidence)} {_BEYOND}"
    )
    title = "Ratio of every comparison"
    return _drawing("comparisons", title, caption, f"ratio of the {metric.name}", rows, c.margin)


def of_points(contrast: ContrastFinding, names: Sequence[str], prove: ProveRequest, note: str) -> Drawing:
    """A row for each point of two arms. `names`: of all points."""
    rows = [
        Row(
            name=names[each.point], found=each.analysis.comparison if each.analysis else None,
            text=interval_text(each.analysis.primary, each.analysis) if each.analysis else "no verdict",
            decides=True, filled=each.verdict is Verdict.EQUIVALENT,
        )
        for each in contrast.points
    ]  # fmt: skip
    # An interval of few runs may be very wide; the ratios themselves are always on the axis.
    logs = [row.logs for row in rows if row.found is not None]
    reach = max(2 * margin_logs(prove.margin)[1], 1.4 * max(abs(middle) for _, middle, _ in logs))
    reach = min(max(reach, 1.1 * descriptive.median(max(-low, high) for low, _, high in logs)), 12.0)
    caption = (
        f"Ratio of the primary metric at each point with its {percent(prove.confidence)} interval. Filled: "
        f"equivalent within ±{prove.margin * 100:g} %, the shaded band, after the correction for several "
        f"comparisons. {_thick(prove.confidence)} {_BEYOND}{note}"
    )
    arms = f"{contrast.contender} / {contrast.baseline}"
    title = f"Ratio at every point: {arms}"
    return _drawing("points", title, caption, arms, rows, prove.margin, reach)


_BEYOND = "An arrow: the interval extends beyond the axis."


def _thick(confidence: float) -> str:
    return (
        f"Thick: the {percent(2 * confidence - 1)} interval of the two one-sided tests; equivalent when it "
        "lies in the band."
    )


def _drawing(
    name: str, title: str, caption: str, axis: str, rows: Sequence[Row], margin: float, reach: float = 0.0
) -> Drawing:
    bounds = margin_logs(margin)
    reach = reach or _reach(rows, bounds[1])
    first = next((number for number, row in enumerate(rows) if not row.decides), len(rows))
    has_groups = 0 < first < len(rows)
    # The rows for information are below a heading of their own.
    texts: list[tuple[Row | None, list[str]]] = [(row, row.lines) for row in rows]
    if has_groups:
        texts = [(None, ["decides"]), *texts[:first], (None, ["for information"]), *texts[first:]]
    # Heights are in inches.
    ends = list(itertools.accumulate(_LINE_IN * len(lines) + _GAP_IN for _, lines in texts))

    def draw(figure: Figure) -> None:
        axes: Any = figure.add_subplot()
        axes.axvspan(*bounds, color=BAND, lw=0)
        axes.axvline(0, color=INK, lw=0.9)
        for (row, lines), begin, end in zip(texts, (0.0, *ends), ends, strict=False):
            middle = -(begin + end) / 2
            _write(axes, lines, middle, INK if row else MUTED, decides=row is not None and row.decides)
            if row is not None:
                _draw_row(axes, row, middle, reach)
        axes.set_yticks([])
        axes.set(xlim=(-reach, reach), ylim=(-ends[-1] - 0.05, 0.05))
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False)
        ratio_axis(axes.xaxis, -reach, reach, most=_TICKS)
        axes.set_xlabel("\n".join(folded(axis, 60, 30)))

    return Drawing(name=name, title=title, caption=caption, draw=draw, height_in=0.66 + ends[-1])


def _write(axes: Any, lines: Sequence[str], middle: float, colour: str, *, decides: bool) -> None:
    """The lines beside the axis. Each is a text of its own: a browser's font has other widths."""
    for number, line in enumerate(lines):
        y = middle + _LINE_IN * ((len(lines) - 1) / 2 - number)
        axes.annotate(
            line, (0, y), xycoords=axes.get_yaxis_transform(), xytext=(-7, 0), textcoords="offset points",
            ha="right", va="center", color=colour, weight="bold" if decides else "normal",
        )  # fmt: skip


def _reach(rows: Sequence[Row], bound: float) -> float:
    """Half the width of the axis, in log ratio: the intervals that decide and the margin always fit, the
    others only where they do not compress these."""
    extents = [(max(abs(low), abs(high)), row.decides) for row in rows for low, _, high in (row.logs,)]
    least = max([2 * bound, *(1.1 * extent for extent, decides in extents if decides)])
    return max([least, *(1.1 * extent for extent, _ in extents if 1.1 * extent <= 3 * least)])


def _draw_row(axes: Any, row: Row, y: float, reach: float) -> None:
    if row.found is not None:
        interval(axes, y, row.logs, reach, filled=row.filled, size=7 if row.decides else 5)
    if isinstance(row.found, Comparison):
        ends = [max(safe_log(row.found.inner_low), -reach), min(safe_log(row.found.inner_high), reach)]
        axes.plot(ends, [y, y], color=INK, lw=3.4, solid_capstyle="butt")
