"""Curves of what the arms used over time: the mean of the runs, with a band of one standard deviation.

Runs take different times. Each phase of each run (start, import, set-up, first step, steps, finish) is
stretched to the mean length of that phase, so that the same part of the work is compared; without a meter the
whole run is one phase.
"""

from __future__ import annotations

import bisect
import itertools
import statistics as descriptive
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from msgspec import UNSET

from bareboat.model import Record, Study, Usage
from bareboat_study.drawing import ARM_COLOURS, AXIS, MUTED, Drawing, legend
from bareboat_study.numbers import bytes_unit
from bareboat_study.windows import Pair

#: Points of a curve, over all phases.
_POINTS = 200
#: Name of a curve, of its drawing, its title, the label of its axis, and whether it is in bytes.
_CURVES = (
    ("rss_bytes", "memory", "Memory over time", "RSS", True),
    ("pss_bytes", "memory", "Memory over time", "PSS", True),
    ("cores", "processors", "Processors over time", "cores in use", False),
    ("gpu_memory_bytes", "gpu-memory", "GPU memory over time", "GPU memory", True),
    ("gpu_percent", "gpu-utilisation", "GPU utilisation over time", "GPU utilisation, %", False),
    ("power_w", "power", "Power over time", "power, W", False),
)
_CORES = "cores"


def figures(study: Study, runs: Sequence[Pair]) -> list[Drawing]:
    """A figure for each curve that every run of both arms has."""
    arms = [[usage for pair in runs if (usage := _usage(pair[arm])) is not None] for arm in (0, 1)]
    if not runs or any(len(usages) < len(runs) for usages in arms):
        return []
    names = set.intersection(*(set(usage.curves) for usages in arms for usage in usages))
    if "cpu_s" in names:
        names.add(_CORES)
    if "rss_bytes" in names:
        names.discard("pss_bytes")
    return [
        _figure(study, arms, curve=curve, name=name, title=title, unit=unit, is_bytes=is_bytes)
        for curve, name, title, unit, is_bytes in _CURVES
        if curve in names
    ]


def band(
    usages: Sequence[Usage], curve: str, ends_s: Sequence[float]
) -> tuple[list[float], list[float], list[float]]:
    """Times, means and standard deviations of a curve over several runs. `ends_s`: where the phases end in
    the result; a run with another number of phases is one phase."""
    times = _grid(ends_s)
    runs = [_stretched(usage, curve, times, ends_s) for usage in usages]
    columns = list(zip(*runs, strict=True))
    means = [descriptive.fmean(column) for column in columns]
    return times, means, [descriptive.stdev(column) if len(column) > 1 else 0.0 for column in columns]


def mean_ends_s(usages: Sequence[Usage]) -> list[float]:
    """The mean end of each phase, over runs."""
    phases = {len(usage.phase_ends_s) for usage in usages}
    if len(phases) > 1 or phases == {0}:
        return [descriptive.fmean(usage.at_s[-1] for usage in usages)]
    return [descriptive.fmean(ends) for ends in zip(*map(_ends, usages), strict=True)]


def _usage(record: Record) -> Usage | None:
    usage = record.usage
    return usage if usage is not UNSET and usage.at_s and usage.curves else None


def _ends(usage: Usage) -> list[float]:
    """In order, also where the clocks of processes differ."""
    return list(itertools.accumulate(usage.phase_ends_s, max))


def _grid(ends_s: Sequence[float]) -> list[float]:
    """Points in every phase: at least eight in each, more in long ones."""
    found: list[float] = []
    for begin, end in itertools.pairwise((0.0, *ends_s)):
        count = 8 + int(_POINTS * (end - begin) / max(ends_s[-1], 1e-9))
        found += [begin + (end - begin) * (number + 1) / count for number in range(count)]
    return found


def _stretched(usage: Usage, curve: str, times: Sequence[float], ends_s: Sequence[float]) -> list[float]:
    """The curve's values at the times of `ends_s`' phases."""
    own = _ends(usage) if len(usage.phase_ends_s) == len(ends_s) > 1 else [usage.at_s[-1]]
    phases = list(zip((0.0, *ends_s), ends_s, (0.0, *own), own, strict=False))
    value = _value_of(usage, curve)
    found = []
    for at in times:
        begin, end, own_begin, own_end = phases[min(bisect.bisect_left(ends_s, at), len(phases) - 1)]
        share = (at - begin) / (end - begin) if end > begin else 1.0
        found.append(value(own_begin + share * (own_end - own_begin)))
    return found


def _value_of(usage: Usage, curve: str) -> Callable[[float], float]:
    """The curve as a function of the run's time; each point holds the time since the one before."""
    at_s = usage.at_s
    if curve == _CORES:
        pairs = itertools.pairwise(zip((0.0, *at_s), (0.0, *usage.curves["cpu_s"]), strict=True))
        values = [max(0.0, b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else 0.0 for a, b in pairs]
    else:
        values = list(usage.curves[curve])

    def value(at: float) -> float:
        return values[min(bisect.bisect_left(at_s, at), len(values) - 1)]

    return value


def _figure(
    study: Study,
    arms: Sequence[Sequence[Usage]],
    *,
    curve: str,
    name: str,
    title: str,
    unit: str,
    is_bytes: bool,
) -> Drawing:
    ends_s = mean_ends_s([*arms[0], *arms[1]])
    bands = [band(usages, curve, ends_s) for usages in arms]
    scale, bytes_of = bytes_unit(v for _, means, _ in bands for v in means) if is_bytes else (1.0, "")
    text = f"{unit}, {bytes_of}" if is_bytes else unit

    def draw(figure: Figure) -> None:
        axes: Any = figure.add_subplot()
        for end in ends_s[:-1]:
            axes.axvline(end, color=AXIS, lw=0.7, ls=":")
        for (times, means, deviations), colour in zip(bands, ARM_COLOURS, strict=True):
            low = [max(0.0, m - d) / scale for m, d in zip(means, deviations, strict=True)]
            high = [(m + d) / scale for m, d in zip(means, deviations, strict=True)]
            axes.fill_between(times, low, high, color=colour, alpha=0.22, lw=0)
            axes.plot(times, [mean / scale for mean in means], color=colour, lw=1.2)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, ends_s[-1])
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
        aligned = ", aligned by phase" * (len(ends_s) > 1)
        axes.set_xlabel(f"seconds since the start{aligned}", color=MUTED)
        axes.set_ylabel(text)
        legend(figure, [arm.name for arm in study.arms])

    phases = ""
    if len(ends_s) > 1:
        phases = (
            " Dotted: the ends of process start, import, set-up, first step and last step; waits at the gate "
            "are part of the steps."
        )
    caption = (
        f"Line: mean over {len(arms[0])} runs; band: one standard deviation. All processes of an arm "
        f"together.{phases}"
    )
    return Drawing(name=name, title=title, caption=caption, draw=draw, height_in=2.7)
