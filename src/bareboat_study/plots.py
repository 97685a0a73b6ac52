"""The figures of a report, from records, as inline SVG.

Every figure is narrow enough for half a desktop page or a telephone; its title and caption are part of the
page.
"""

from __future__ import annotations

import math
import statistics as descriptive
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bareboat.model import Record, Study
from bareboat_study import bands
from bareboat_study.analysis import Analysis
from bareboat_study.drawing import (
    ARM_COLOURS,
    ARM_MARKERS,
    AXIS,
    BAND,
    BLOCK,
    INK,
    THOUSANDS,
    Drawing,
    folded,
    label,
    legend,
    legend_of,
    margin_logs,
    pad_y,
    ratio_axis,
    robust_limits,
    run_axis,
    run_ticks,
    safe_log,
    titled,
)
from bareboat_study.measures import Metric
from bareboat_study.numbers import bytes_unit, digits, percent
from bareboat_study.windows import Pair, step_s

#: Field of `Phases`, its name on the page, its colour (the same palette, without the arms' two).
PHASES = (
    ("process_start_s", "process start", "#56B4E9"),
    ("import_s", "import", "#E69F00"),
    ("setup_s", "set-up", "#009E73"),
    ("first_step_s", "first step", "#CC79A7"),
    ("steady_s", "steady", "#C9CFD4"),
    ("finish_s", "finish", "#7A8793"),
)


def throughputs(record: Record) -> tuple[tuple[float, float], ...]:
    """(began_s, samples/s) of every window; steps/s when the script gives no samples per step."""
    per_step = record.samples_per_step or 1.0
    return tuple((window.began_s, per_step / step_s(window)) for window in record.windows)


# --------------------------------------------------------------------------------------------------
# The figures.


def figures(study: Study, analysis: Analysis) -> tuple[Drawing, ...]:
    """All figures below the verdict that the records have the data for."""
    runs = analysis.pairs
    every = [record for pair in runs for record in pair]
    drawn = [
        _windows(study, runs) if any(r.windows for r in every) else None,
        _pairs(study, analysis.primary),
        _effects(study, runs, analysis),
        _phases(study, runs) if all(r.phases for r in every) else None,
        *bands.figures(study, runs),
    ]
    return tuple(drawing for drawing in drawn if drawing is not None)


def _windows(study: Study, runs: Sequence[Pair]) -> Drawing:
    """Throughput of every window, runs side by side, so that drift within and across runs shows."""
    points = [
        (place, began_s, arm, value)
        for place, run in enumerate(runs)
        for arm, record in enumerate(run)
        for began_s, value in throughputs(record)
    ]
    low, high = robust_limits([point[3] for point in points])
    spans = _time_spans(points)
    outside = sum(not low <= point[3] <= high for point in points)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        run_axis(axes, [run[0].run for run in runs])
        for arm in (0, 1):
            own = [p for p in points if p[2] == arm]
            xs = [place - 0.4 + 0.8 * (t - spans[place][0]) / spans[place][1] for place, t, _, _ in own]
            axes.plot(xs, [min(max(p[3], low), high) for p in own], ls="", marker=ARM_MARKERS[arm], ms=2.7,
                      mew=0, alpha=0.55, color=ARM_COLOURS[arm], clip_on=False)  # fmt: skip
            for place in sorted({p[0] for p in own}):
                median = descriptive.median(p[3] for p in own if p[0] == place)
                axes.plot([place - 0.42, place + 0.42], [median] * 2, color=ARM_COLOURS[arm], lw=1.5)
        pad_y(axes, low, high)
        axes.yaxis.set_major_formatter(THOUSANDS)
        per_step = runs[0][0].samples_per_step
        axes.set_ylabel("samples per second" if per_step else "steps per second")
        axes.set_xlabel("run (its windows in order of time)")
        legend(figure, [arm.name for arm in study.arms])

    caption = "One point per window of training steps. Lines: medians per run."
    if outside:
        caption += f" {outside} of {len(points)} windows are beyond the axis and drawn at its edge."
    return Drawing(
        name="throughput", title="Throughput by arm, raw", caption=caption, draw=draw, height_in=2.7
    )


def _pairs(study: Study, metric: Metric) -> Drawing:
    """The primary metric per run, baseline to contender: the basis of the verdict."""
    scale, unit = bytes_unit(metric.baseline) if metric.unit in ("B", "bytes") else (1.0, metric.unit)
    sides = [[value / scale for value in side] for side in (metric.baseline, metric.contender)]
    means = (metric.baseline_mean / scale, metric.contender_mean / scale)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for left, right in zip(*sides, strict=True):
            axes.plot([0, 1], [left, right], color=AXIS, lw=0.8, alpha=0.8)
        for arm, values in enumerate(sides):
            axes.plot([arm] * len(values), values, ls="", marker=ARM_MARKERS[arm], ms=5.5, mew=0,
                      alpha=0.75, color=ARM_COLOURS[arm])  # fmt: skip
            mean, aside = means[arm], arm * 2 - 1
            axes.plot([arm + 0.07 * aside, arm + 0.2 * aside], [mean] * 2, color=ARM_COLOURS[arm], lw=2.5)
            axes.annotate(f"mean\n{digits(mean)}", (arm + 0.2 * aside, mean), xytext=(5 * aside, 0),
                          textcoords="offset points", va="center", ha="left" if arm else "right",
                          color=ARM_COLOURS[arm])  # fmt: skip
        axes.set_xlim(-0.75, 1.75)
        axes.set_xticks([0, 1], ["\n".join(folded(arm.name, 32, 16)) for arm in study.arms])
        axes.tick_params(axis="x", length=0, labelcolor=INK, labelsize="medium")
        axes.yaxis.set_major_formatter(THOUSANDS)
        axes.set_ylabel(label(f"{metric.name}, {unit}", 32))

    caption = (
        "One line per run joins its two arms. The means are geometric, so that their quotient is the ratio. "
        "Lines that lie apart but run in parallel are drift of the machine, which the pairs cancel."
    )
    title = f"{titled(label(metric.name, 60))}, pair by pair"
    return Drawing(name="pairs", title=title, caption=caption, draw=draw, height_in=2.7)


def _effects(study: Study, runs: Sequence[Pair], analysis: Analysis) -> Drawing:
    """Log ratios: a dot per block, a thick line per run, the interval over all runs at the right."""
    metric, c = analysis.primary, analysis.comparison
    effects, blocks = metric.effects, metric.blocks
    numbers = [pair[0].run for pair in runs]
    least = [*effects, safe_log(c.low), safe_log(c.high), *margin_logs(c.margin)]
    flat = [value for values in blocks for value in values]
    robust = robust_limits(flat) if flat else (0.0, 0.0)
    low, high = min(*least, robust[0]), max(*least, robust[1])
    outside = sum(not low <= value <= high for value in flat)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhspan(*margin_logs(c.margin), color=BAND, lw=0)
        axes.axhline(0, color=INK, lw=0.9)
        for place, values in enumerate(blocks):
            xs = [place - 0.32 + 0.64 * (k + 0.5) / len(values) for k in range(len(values))]
            axes.plot(xs, [min(max(v, low), high) for v in values], ls="", marker="o", ms=2.5, mew=0,
                      alpha=0.5, color=BLOCK)  # fmt: skip
        for place, effect in enumerate(effects):
            axes.plot([place - 0.36, place + 0.36], [effect] * 2, color=INK, lw=3, solid_capstyle="butt")
        at = len(effects) + 0.15
        axes.axvline(at - 0.58, color=AXIS, lw=0.7)
        axes.plot([at, at], [safe_log(c.low), safe_log(c.high)], color=INK, lw=2)
        axes.plot(at, safe_log(c.ratio), marker="D", ms=6.5, color=INK)
        run_ticks(axes, numbers, extra=(at, "all"))
        axes.set_xlim(-0.6, at + 0.5)
        pad_y(axes, low, high)
        ratio_axis(axes.yaxis, *axes.get_ylim())
        axes.grid(visible=False)
        axes.set_xlabel("run")
        axes.set_ylabel(label(f"{study.arms[1].name} / {study.arms[0].name}", 32))

    dots = "Dots: one ratio per block of paired windows. " if flat else ""
    caption = (
        f"{dots}Thick lines: one effect per run, the basis of the verdict. Right: the ratio over "
        f"all runs with its {percent(c.confidence)} interval. Shaded: the margin."
    )
    if outside:
        caption += f" {outside} of {len(flat)} blocks are beyond the axis and drawn at its edge."
    title = f"Paired ratio of the {label(metric.name, 40)}, run by run"
    return Drawing(name="effects", title=title, caption=caption, draw=draw, height_in=2.7)


def _phases(study: Study, runs: Sequence[Pair]) -> Drawing:
    """Stacked means, and every phase on a log axis, which shows short ones."""
    seconds = [
        [[float(getattr(run[arm].phases, field)) for run in runs] for field, _, _ in PHASES] for arm in (0, 1)
    ]

    def draw(figure: Figure) -> None:
        stack, rows = figure.subplots(2, 1, height_ratios=(1, 2.3))
        for arm in (0, 1):
            left = 0.0
            for values, (_, name, colour) in zip(seconds[arm], PHASES, strict=True):
                mean = descriptive.geometric_mean(values) if min(values) > 0 else descriptive.fmean(values)
                stack.barh(1 - arm, mean, left=left, height=0.62, color=colour, label=None if arm else name)
                left += mean
            totals = [math.fsum(phases[i] for phases in seconds[arm]) for i in range(len(runs))]
            stack.plot(totals, [0.58 - arm] * len(totals), ls="", marker="|", ms=5, color=ARM_COLOURS[arm])
            _phase_dots(rows, seconds[arm], arm)
        stack.set_yticks([1, 0], [label(arm.name, 16) for arm in study.arms])
        stack.set(ylim=(-0.62, 1.45), xlabel="seconds, means stacked")
        legend_of(figure, *stack.get_legend_handles_labels())
        rows.set_yticks([-i for i in range(len(PHASES))], [name for _, name, _ in PHASES])
        rows.set_xscale("log")
        rows.xaxis.set_major_locator(LogLocator(numticks=8))
        rows.xaxis.set_minor_locator(NullLocator())
        rows.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        rows.set_xlabel("seconds, log scale")
        for axes in (stack, rows):
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.grid(visible=False, axis="y")
            axes.grid(visible=True, axis="x")

    caption = (
        "Top: the geometric mean of each phase over the runs, stacked; the ticks under a bar are the runs' "
        "own totals. Waits at the gate, while the other arm runs, are excluded. Below: every run, the "
        "median (large) and the middle half of the runs (line)."
    )
    return Drawing(name="phases", title="Where the wall time goes", caption=caption, draw=draw, height_in=4.2)


def _phase_dots(axes: Any, phases: Sequence[Sequence[float]], arm: int) -> None:
    for row, values in enumerate(phases):
        y = -row + 0.17 - 0.34 * arm
        shown = [max(value, 1e-3) for value in values]  # a log axis has no zero
        axes.plot(shown, [y] * len(shown), ls="", marker=ARM_MARKERS[arm], ms=3, mew=0, alpha=0.35,
                  color=ARM_COLOURS[arm])  # fmt: skip
        if len(shown) > 1:
            low, median, high = descriptive.quantiles(shown, n=4, method="inclusive")
            axes.plot([low, high], [y, y], color=ARM_COLOURS[arm], lw=1.6)
            axes.plot(median, y, marker=ARM_MARKERS[arm], ms=6, mec="white", mew=0.7, color=ARM_COLOURS[arm])


def _time_spans(points: Iterable[tuple[int, float, int, float]]) -> dict[int, tuple[float, float]]:
    """Start and length of each run's windows, over both arms, so that neighbours in time stay neighbours."""
    times: dict[int, list[float]] = defaultdict(list)
    for place, began_s, _, _ in points:
        times[place].append(began_s)
    return {place: (min(all_s), max(all_s) - min(all_s) or 1.0) for place, all_s in times.items()}
