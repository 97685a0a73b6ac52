"""Pure: the verdict of a comparison in words and numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bareboat_study import blocks, layouts
from bareboat_study.statistics import LEAST_RUNS, MOST_RUNS, Comparison, Verdict, runs_needed

if TYPE_CHECKING:
    from bareboat_study.measures import Metric

#: Larger changes are given as a factor.
_MOST_PERCENT = 300.0


def sentence(
    found: Comparison, *, metric: str, baseline: str, contender: str, looks: int = 1, between: float = 0.0
) -> str:
    """The verdict in one sentence, with its numbers. `looks`: at the data, that the design allows.
    `between`: the deviation that all runs have in common."""
    margin = f"{found.margin * 100:g} %"
    runs = f"{found.runs} runs" + (f", at one of {looks} looks" if looks > 1 else "")
    interval = f"{found.confidence * 100:.4g} % interval [{found.low:.4f}, {found.high:.4f}]"
    of = f"{metric} of {contender} / {baseline} is {found.ratio:.4f}"
    of += "" if found.has_too_few_runs else f", {interval}, {runs}"
    match found.verdict:
        case Verdict.EQUIVALENT:
            return f"equivalent within {margin}: {of} (equivalence test p = {found.equivalence_p:.2g})"
        case Verdict.DIFFERENT:
            side = "higher" if found.ratio > 1 else "lower"
            ends = sorted((found.low, found.high), key=lambda ratio: abs(ratio - 1))
            exceeded = "is" if max(found.low, 1 / found.high) > 1 + found.margin else "may be"
            return (
                f"different: {metric} of {contender} is {_size(found.ratio)} {side} than of {baseline}, and "
                f"between {_size(ends[0])} and {_size(ends[1])} {side}: the margin of {margin} {exceeded} "
                f"exceeded; ratio {found.ratio:.4f}, {interval}, {runs} (p = {found.difference_p:.2g})"
            )
        case _:
            return f"{found.verdict} at {margin}: {of}; {_more(found, between)}"


def headline(word: str, metric: Metric) -> str:
    """The verdict of a metric in a few words; of a difference its size and direction."""
    found = metric.comparison
    if word != Verdict.DIFFERENT.value:
        return word
    return f"{word}: {_size(found.ratio)} {_sense(metric)}"


def _sense(metric: Metric) -> str:
    is_speed = metric.unit.endswith("/s")
    if is_speed or metric.unit.partition("/")[0] == "s":
        return "faster" if (metric.comparison.ratio > 1) == is_speed else "slower"
    return "higher" if metric.comparison.ratio > 1 else "lower"


def _size(ratio: float) -> str:
    percent = abs(ratio - 1) * 100
    if math.isinf(percent):
        return "any number of times"
    if percent > _MOST_PERCENT:
        return f"{ratio:.3g} times"
    return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2g} %"


def _more(found: Comparison, between: float) -> str:
    """What would make a new study decide."""
    if found.verdict is Verdict.TOO_NOISY:
        times = found.half_widths_of_margin
        text = f"{times:.0f} times" if times < 1000 else "over 1,000 times"
        return f"the half-width of the interval is {text} the margin; use an idle machine"
    if found.runs < LEAST_RUNS:
        return blocks.few(found.runs)
    enough = found.enough_runs
    if enough is not None:
        text = f"if the arms do not differ, a new study of {enough} runs decides with a power of 80 %"
        return f"{text}, with {layouts.text(between)} in its interval, too" if between else text
    least = runs_needed(deviation=0.0, margin=found.margin, confidence=found.confidence, between=between)
    if between and least is None:  # what all runs have in common is too much for the margin
        return (
            f"no number of runs is enough at this margin: the interval contains {layouts.text(between)}, "
            "which more runs do not reduce; a new study needs a larger one"
        )
    return f"no number of runs up to {MOST_RUNS:,} is enough at this margin; a new study needs a larger one"
