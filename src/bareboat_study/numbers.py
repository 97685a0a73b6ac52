"""Pure: numbers of a study as text, the same in every form of its report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bareboat_study.analysis import Analysis, Goal
    from bareboat_study.measures import Metric
    from bareboat_study.statistics import Estimate


#: In place of an interval that means nothing.
TOO_FEW_RUNS = "[too few runs]"


def ratio_text(value: float, width: float) -> str:
    """A ratio with enough decimals to distinguish the ends of an interval of this width."""
    decimals = 3 if width >= 0.004 else 4 if width >= 0.0004 else 5
    return f"{value:.{decimals}f}"


def interval_text(metric: Metric, found: Analysis) -> str:
    """`0.998 [0.995, 1.001]`; in parentheses where it is no result."""
    text = " ".join(ratio_and_interval(metric.comparison))
    return f"({text})" if found.unusable else text


def ratio_and_interval(found: Estimate) -> tuple[str, str]:
    if found.has_too_few_runs:
        return ratio_text(found.ratio, 1.0), TOO_FEW_RUNS
    ratio, low, high = (ratio_text(v, found.high - found.low) for v in (found.ratio, found.low, found.high))
    return ratio, f"[{low}, {high}]"


def percent(share: float) -> str:
    """`0.95` -> `95 %`."""
    return f"{100 * share:.4g} %"


def bytes_unit(values: Iterable[float]) -> tuple[float, str]:
    """The divisor and the name of the unit that suits the largest of these byte counts."""
    return (2.0**30, "GiB") if max(values, default=0) >= 4 * 2**30 else (2.0**20, "MiB")


def scaled_unit(values: Iterable[float], unit: str) -> tuple[float, str]:
    """The divisor and the name of the unit that suits the largest of these values: "ns/sample" for
    "s/sample"."""
    if unit in ("B", "bytes"):
        return bytes_unit(values)
    if unit.partition("/")[0] in _WITH_PREFIXES:
        largest = max(values, default=0)
        for factor, prefix in _PREFIXES:
            if largest >= factor:
                return factor, f"{prefix}{unit}"
    return 1.0, unit


#: Units that get a prefix where a value is small.
_WITH_PREFIXES = ("s", "J")
#: From here on, columns have an exponent.
_LARGE = 1e8
_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def unit_of(metric: Metric) -> tuple[float, str]:
    """The divisor and the name of the unit in which the metric is shown."""
    return scaled_unit((*metric.baseline, *metric.contender), metric.unit)


def quantity(value: float, unit: str) -> str:
    """A value with its unit where that has a prefix: `163 ns` of `s/sample`; of other units alone."""
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MiB"
    if unit.partition("/")[0] not in _WITH_PREFIXES:
        return digits(value) if value < _LARGE else f"{value:.4g}"
    scale, name = scaled_unit((value,), unit)
    short = name.partition("/")[0]
    return f"{value / scale:,.1f} {short}" if scale < 1 else f"{digits(value)} {short}"


def with_unit(name: str, unit: str) -> str:
    """The name of a metric with the part of the unit that its values lack."""
    first, _, per = unit.partition("/")
    if first in _WITH_PREFIXES or unit in ("bytes", ""):
        return f"{name} per {per}" if per else name
    return f"{name}, {unit}"


def digits(value: float) -> str:
    """Four significant digits, and all digits of a large number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}".rstrip(".") if value else "0"


def p_value(value: float) -> str:
    """A p value for people; that of a study that goes on, which is not a number, is not shown."""
    if math.isnan(value):
        return "none before the end"
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def lowest(goal: Goal) -> str:
    """The lowest value that a run of a goal's arm had."""
    if goal.not_numbers:
        return f"not finite in {goal.not_numbers}"
    return "no value" if goal.lowest is None else f"{goal.lowest:.6g}"
