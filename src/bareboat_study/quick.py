"""A quick study: as many runs as fit into about a minute, fixed after the warm-up, before any measured run.

The number depends on how long the warm-up took, and on no result, so the tests stay valid; with so few runs
the interval is wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bareboat.model import ProveRequest, Study

if TYPE_CHECKING:
    from bareboat_study.statistics import Comparison

_TARGET_S = 60.0
#: With fewer there is no interval.
_LEAST = 2


def repeats(request: ProveRequest, warm_up_s: float) -> int:
    """The number of measured runs that fits."""
    fitting = int((_TARGET_S - warm_up_s) / max(warm_up_s, 0.001))
    return max(_LEAST, min(request.repeats, fitting))


def sentence(study: Study, found: Comparison) -> str:
    """What a reader must know of a quick study's result."""
    most = max(found.high - 1, 1 / found.low - 1) if found.low > 0 else float("inf")
    is_bounded = most < 10 and not found.has_too_few_runs
    bound = f"at most {most:.1%}" if is_bounded else "not bounded by these runs"
    return (
        f"Quick study of {found.runs} runs: the interval is wide. With {found.confidence:.0%} confidence the "
        f"difference is {bound}; the verdict is for the margin of {study.job.prove.margin:.1%}. "
        "For a verdict to rely on, prove without --quick."
    )
