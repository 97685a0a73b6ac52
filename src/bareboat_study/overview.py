"""The figures of a study of several points, from its findings: ratios, values and speed-ups of all points.

One comparison at one point has figures of its own (study/plots.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from bareboat.model import Matrix
from bareboat.model.matrix import shown
from bareboat_study import forest
from bareboat_study.drawing import (
    INK,
    MUTED,
    SERIES_COLOURS,
    SERIES_MARKERS,
    THOUSANDS,
    Drawing,
    folded,
    label,
    legend,
    titled,
)
from bareboat_study.findings import ScalingFinding, StudyFindings, values_of_arms
from bareboat_study.numbers import bytes_unit, percent

_PANELS_IN_A_ROW = 2
_WIDEST_LABEL = 22
#: More series than colours cannot be distinguished.
_MOST_SERIES = len(SERIES_COLOURS)


def figures(matrix: Matrix, found: StudyFindings) -> tuple[Drawing, ...]:
    """All figures that the findings have the data for."""
    drawn = []
    labels, note = _labels(matrix)
    for number, contrast in enumerate(found.contrasts, start=1):
        if len(contrast.points) > 1 and any(each.analysis for each in contrast.points):
            points = forest.of_points(contrast, labels, matrix.prove, note)
            drawn.append(dataclasses.replace(points, name=f"points-{number}"))
    if len(matrix.points) > 1 and (values := _values(matrix, found, labels, note)) is not None:
        drawn.append(values)
    if found.scalings and len({each.arm for each in found.scalings}) <= _MOST_SERIES:
        drawn.append(_speed_ups(matrix, found))
    return tuple(drawn)


def _labels(matrix: Matrix) -> tuple[list[str], str]:
    """The points' names beside an axis, and what a caption explains of them: long names are values only."""
    point_texts = [matrix.point_text(point) for point in range(len(matrix.points))]
    if max(map(len, point_texts)) <= _WIDEST_LABEL:
        return [label(each, _WIDEST_LABEL) for each in point_texts], ""
    names = ", ".join(name.rpartition(".")[2] for name in matrix.factors)
    values = [label(", ".join(map(shown, point)), _WIDEST_LABEL) for point in matrix.points]
    return values, f" Rows: {label(names, 100)}."


# --------------------------------------------------------------------------------------------------
# Values.


def _values(matrix: Matrix, found: StudyFindings, labels: Sequence[str], note: str) -> Drawing | None:
    """Bars of the arms' geometric means, with the value of every run."""
    known = values_of_arms(found.contrasts)
    if not known or len(matrix.arms) > _MOST_SERIES:
        return None
    arms = [arm for arm in matrix.arms if any(arm == own for own, _ in known)]
    every = [value for each in known.values() for value in each.values]
    scale, unit = bytes_unit(every) if found.unit in ("B", "bytes") else (1.0, found.unit)
    step = 0.8 / len(arms)
    spots = sorted({point for _, point in known})

    def draw(figure: Figure) -> None:
        axes: Any = figure.add_subplot()
        for row, point in enumerate(spots):
            for place, arm in enumerate(arms):
                if (own := known.get((arm, point))) is None:
                    continue
                y = -row + 0.4 - step * (place + 0.5)
                colour, length = SERIES_COLOURS[place], own.mean / scale
                axes.barh(y, length, height=0.9 * step, color=colour, alpha=0.35, lw=0)
                axes.plot(
                    [value / scale for value in own.values], [y] * len(own.values), ls="",
                    marker=SERIES_MARKERS[place], ms=3.2, mew=0, alpha=0.75, color=colour,
                )  # fmt: skip
        axes.set_yticks([-row for row in range(len(spots))], [labels[each] for each in spots])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(-len(spots) + 0.4, 0.6)
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(THOUSANDS)
        axes.set_xlabel("\n".join(folded(f"{found.metric}{f', {unit}' if unit else ''}", 60, 30)))
        legend(figure, arms)

    sense = "higher" if found.higher_is_better else "lower"
    caption = f"Bars: geometric means. Each mark is one run. {sense.capitalize()} is better.{note}"
    height_in = 0.85 + len(spots) * (0.12 + 0.17 * len(arms))
    title = f"{titled(label(found.metric, 60))} at every point"
    return Drawing(name="values", title=title, caption=caption, draw=draw, height_in=height_in)


# --------------------------------------------------------------------------------------------------
# Speed-up.


def _speed_ups(matrix: Matrix, found: StudyFindings) -> Drawing:
    """Speed-up of each arm with the ideal line; a panel for each combination of the other factors."""
    panels: dict[str, list[ScalingFinding]] = {}
    for each in found.scalings:
        panels.setdefault(each.at, []).append(each)
    arms = [arm for arm in matrix.arms if any(each.arm == arm for each in found.scalings)]
    columns = min(len(panels), _PANELS_IN_A_ROW)
    rows = math.ceil(len(panels) / columns)

    def draw(figure: Figure) -> None:
        grid: Any = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        spots: list[Any] = list(grid.flat)
        for axes, (at, series) in zip(spots, panels.items(), strict=False):
            _speed_up_panel(axes, series, arms)
            if at:
                axes.set_title(label(at, 22), loc="left", fontsize="medium", color=INK)
        for axes in spots[len(panels) :]:
            axes.set_visible(False)
        figure.supxlabel("workers", color=MUTED, fontsize="medium")
        figure.supylabel("speed-up", color=MUTED, fontsize="medium")
        legend(figure, arms)

    caption = (
        "Speed over that of the smallest number of workers, with its "
        f"{percent(matrix.prove.confidence)} interval (Welch). Dashed: ideal."
    )
    return Drawing(name="speed-up", title="Speed-up", caption=caption, draw=draw, height_in=0.7 + 1.9 * rows)


def _speed_up_panel(axes: Any, series: Sequence[ScalingFinding], arms: Sequence[str]) -> None:
    numbers = sorted({up.workers for each in series for up in each.speed_ups})
    axes.plot([numbers[0], numbers[-1]], [1, numbers[-1] / numbers[0]], color=MUTED, lw=0.9, ls="--")
    for each in series:
        place = arms.index(each.arm)
        ups = each.speed_ups
        # Side by side, so that equal arms do not cover each other.
        aside = (place - (len(arms) - 1) / 2) * 0.025 * (numbers[-1] - numbers[0])
        axes.errorbar(
            [up.workers + aside for up in ups],
            [up.speed_up for up in ups],
            yerr=[[up.speed_up - up.low for up in ups], [up.high - up.speed_up for up in ups]],
            color=SERIES_COLOURS[place], marker=SERIES_MARKERS[place], ms=4.5, mew=0, lw=1.2, elinewidth=1.0,
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(FixedLocator(numbers))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
