"""The figures of the series that a study's patterns found in the runs' output, such as the loss by epoch."""

from __future__ import annotations

import math
import statistics as descriptive
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from msgspec import UNSET

from bareboat.model import Matrix, MetricRequest, Record
from bareboat_study import validity
from bareboat_study.drawing import INK, MUTED, SERIES_COLOURS, THOUSANDS, Drawing, label, legend, titled

Points = Sequence[tuple[float, float]]

_PANELS_IN_A_ROW = 2
#: A page with more panels in a figure is too long to read.
_MOST_PANELS = 24
#: More points of a line cannot be seen.
_MOST_POINTS = 400


def figures(matrix: Matrix, records: Sequence[Sequence[Record]]) -> tuple[Drawing, ...]:
    """A figure for each series, with a panel for each point of the study. `records[point]`. The warm-up and
    failed runs are not drawn."""
    drawn = []
    for metric in matrix.metrics:
        if not metric.is_curve or len(matrix.arms) > len(SERIES_COLOURS):
            continue
        panels = {
            point: curves
            for point, own in enumerate(records)
            if (curves := _curves(matrix, own, metric.name))
        }
        if panels and len(panels) <= _MOST_PANELS:
            drawn.append(_figure(matrix, metric, panels))
    return tuple(drawn)


def _curves(matrix: Matrix, records: Sequence[Record], name: str) -> dict[str, list[Points]]:
    """Arm -> the curve of each run. Values that are not finite are left out."""
    found: dict[str, list[Points]] = {}
    for arm in matrix.arms:
        for record in validity.measured(records):
            if record.arm != arm or record.series is UNSET:
                continue
            points = [
                (float(x), float(y))
                for x, y in record.series.get(name, ())
                if math.isfinite(float(x)) and math.isfinite(float(y))
            ]
            if points:
                found.setdefault(arm, []).append(points)
    return found


def _figure(matrix: Matrix, metric: MetricRequest, panels: dict[int, dict[str, list[Points]]]) -> Drawing:
    columns = min(len(panels), _PANELS_IN_A_ROW)
    rows = math.ceil(len(panels) / columns)
    arms = [arm for arm in matrix.arms if any(arm in curves for curves in panels.values())]
    every = [runs for curves in panels.values() for runs in curves.values()]
    # Whether all runs have values at the same places.
    banded = all(len({tuple(x for x, _ in run) for run in runs}) == 1 for runs in every)

    def draw(figure: Figure) -> None:
        grid: Any = figure.subplots(rows, columns, squeeze=False)
        spots: list[Any] = list(grid.flat)
        for axes, (point, curves) in zip(spots, panels.items(), strict=False):
            for arm, runs in curves.items():
                place = arms.index(arm)
                # Equal lines lie on each other; the first stays visible below the others.
                _draw_arm(axes, runs, SERIES_COLOURS[place], 1.0 if place else 2.2, banded=banded)
            axes.xaxis.set_major_locator(MaxNLocator(3 if columns > 1 else 6))
            axes.yaxis.set_major_locator(MaxNLocator(5))
            axes.yaxis.set_major_formatter(THOUSANDS)
            if name := matrix.point_text(point):
                axes.set_title(
                    label(name, 22 if columns > 1 else 44), loc="left", fontsize="medium", color=INK
                )
        for axes in spots[len(panels) :]:
            axes.set_visible(False)
        figure.supxlabel(label(metric.x or "x", 40), color=MUTED, fontsize="medium")
        unit = f", {metric.unit}" if metric.unit else ""
        figure.supylabel(label(metric.name + unit, 40), color=MUTED, fontsize="medium")
        legend(figure, arms)

    how = (
        "Lines: means over the runs; bands: one standard deviation"
        if banded
        else "One line per run, since the runs have values at different places"
    )
    by = f" by {metric.x}" if metric.x else ""
    return Drawing(
        name=f"series-{metric.name}",
        title=f"{titled(label(metric.name, 60))}{by}",
        caption=f"{how}. From the runs' output.",
        draw=draw,
        height_in=0.7 + (1.7 if columns > 1 else 2.3) * rows,
    )


def _draw_arm(axes: Any, runs: Sequence[Points], colour: str, width: float, *, banded: bool) -> None:
    marker = "o" if max(map(len, runs)) <= 12 else ""
    if not banded:
        for run in runs:
            points = _thinned(run)
            axes.plot(
                [x for x, _ in points], [y for _, y in points], color=colour, lw=0.7 * width, alpha=0.6,
                marker=marker, ms=2.5, mew=0,
            )  # fmt: skip
        return
    columns = list(zip(*map(_thinned, runs), strict=True))
    xs = [column[0][0] for column in columns]
    means = [descriptive.fmean(y for _, y in column) for column in columns]
    if len(runs) > 1:
        spread = [descriptive.stdev(y for _, y in column) for column in columns]
        low = [mean - each for mean, each in zip(means, spread, strict=True)]
        high = [mean + each for mean, each in zip(means, spread, strict=True)]
        axes.fill_between(xs, low, high, color=colour, alpha=0.22, lw=0)
    axes.plot(xs, means, color=colour, lw=width, marker=marker, ms=3 + width, mew=0)


def _thinned(points: Points) -> Points:
    every = math.ceil(len(points) / _MOST_POINTS)
    return points[::every]
