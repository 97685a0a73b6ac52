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
from bareboat.model.matrix import Value, point_text, shown
from bareboat_study import forest, scaling
from bareboat_study.drawing import (
    ARM_COLOURS,
    INK,
    MUTED,
    SERIES_COLOURS,
    SERIES_MARKERS,
    Drawing,
    folded,
    label,
    legend,
    margin_logs,
    safe_log,
    titled,
)
from bareboat_study.findings import (
    ContrastFinding,
    PointFinding,
    ScalingFinding,
    StudyFindings,
    values_of_arms,
)
from bareboat_study.numbers import bytes_unit, percent, ratio_text
from bareboat_study.statistics import Verdict

#: A heat map with more columns has no room for numbers in its cells.
_MOST_COLUMNS = 8
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
            if (heat := _heat_map(matrix, contrast, number)) is not None:
                drawn.append(heat)
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
# Ratios.


def _heat_map(matrix: Matrix, contrast: ContrastFinding, number: int) -> Drawing | None:
    """The ratios over the two factors with the most values; a panel for each combination of the others. None
    where fewer than two factors vary."""
    levels = [list(dict.fromkeys(point[at] for point in matrix.points)) for at in range(len(matrix.factors))]
    varying = sorted((at for at, each in enumerate(levels) if len(each) > 1), key=lambda at: -len(levels[at]))
    if len(varying) < 2:
        return None
    down, across, *others = varying
    if len(levels[across]) > _MOST_COLUMNS:
        return None
    panels: dict[tuple[Value, ...], dict[tuple[Value, Value], PointFinding]] = {}
    for each in contrast.points:
        point = matrix.points[each.point]
        panels.setdefault(tuple(point[at] for at in others), {})[point[down], point[across]] = each
    full = max(
        2 * margin_logs(matrix.prove.margin)[1],
        *(abs(safe_log(a.comparison.ratio)) for each in contrast.points if (a := each.analysis)),
    )
    rows, columns = levels[down], levels[across]
    names = tuple(matrix.factors[at] for at in others)

    def draw(figure: Figure) -> None:
        grid: Any = figure.subplots(len(panels), 1, squeeze=False)
        for (values, cells), axes in zip(panels.items(), grid[:, 0], strict=True):
            for (row, column), each in cells.items():
                _cell(axes, columns.index(column), -rows.index(row), each, full)
            axes.set_xticks(range(len(columns)), [label(shown(value), 14) for value in columns])
            axes.set_yticks([-at for at in range(len(rows))], [label(shown(value), 14) for value in rows])
            axes.tick_params(length=0, labelcolor=INK)
            axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-len(rows) + 0.5, 0.5))
            axes.grid(visible=False)
            for side in axes.spines.values():
                side.set_visible(False)
            if names:
                axes.set_title(label(point_text(names, values), 50), loc="left", fontsize="medium", color=INK)
        grid[-1, 0].set_xlabel(label(matrix.factors[across].rpartition(".")[2], 40))

    caption = (
        "Ratio over two factors. Blue: below 1, vermilion: above 1; the stronger, the further from 1. Bold: "
        "different after the correction for several comparisons."
    )
    return Drawing(
        name=f"heat-map-{number}",
        title=f"Ratios over two factors: {contrast.contender} / {contrast.baseline}",
        caption=caption,
        draw=draw,
        height_in=0.35 + len(panels) * (0.3 * bool(names) + 0.25 + 0.3 * len(rows)),
    )


def _cell(axes: Any, x: float, y: float, found: PointFinding, full: float) -> None:
    if found.analysis is None:
        axes.annotate("none", (x, y), ha="center", va="center", color=MUTED)
        return
    c = found.analysis.comparison
    log = safe_log(c.ratio)
    strength = 0.55 * min(abs(log) / full, 1.0)
    axes.fill_between(
        [x - 0.48, x + 0.48], y - 0.46, y + 0.46, color=ARM_COLOURS[log > 0], alpha=strength, lw=0
    )
    weight = "bold" if found.verdict is Verdict.DIFFERENT else "normal"
    axes.annotate(ratio_text(c.ratio, c.high - c.low), (x, y), ha="center", va="center", weight=weight)


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
        f"{percent(matrix.prove.confidence)} interval (Welch). Dashed: ideal. Dotted, where three numbers of "
        "workers were measured: Amdahl's law fitted to all runs."
    )
    return Drawing(name="speed-up", title="Speed-up", caption=caption, draw=draw, height_in=0.7 + 1.9 * rows)


def _speed_up_panel(axes: Any, series: Sequence[ScalingFinding], arms: Sequence[str]) -> None:
    numbers = sorted({up.workers for each in series for up in each.scaling.speed_ups})
    axes.plot([numbers[0], numbers[-1]], [1, numbers[-1] / numbers[0]], color=MUTED, lw=0.9, ls="--")
    for each in series:
        place = arms.index(each.arm)
        ups = each.scaling.speed_ups
        # Side by side, so that equal arms do not cover each other.
        aside = (place - (len(arms) - 1) / 2) * 0.025 * (numbers[-1] - numbers[0])
        axes.errorbar(
            [up.workers + aside for up in ups],
            [up.speed_up for up in ups],
            yerr=[[up.speed_up - up.low for up in ups], [up.high - up.speed_up for up in ups]],
            color=SERIES_COLOURS[place], marker=SERIES_MARKERS[place], ms=4.5, mew=0, lw=1.2, elinewidth=1.0,
        )  # fmt: skip
        for law in each.scaling.laws:
            if law.name == "Amdahl":
                steps = [numbers[0] + (numbers[-1] - numbers[0]) * k / 60 for k in range(61)]
                base = scaling.law_speed(numbers[0], law.serial, law.coherency)
                curve = [scaling.law_speed(n, law.serial, law.coherency) / base for n in steps]
                axes.plot(steps, curve, color=SERIES_COLOURS[place], lw=0.8, ls=":")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(FixedLocator(numbers))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
