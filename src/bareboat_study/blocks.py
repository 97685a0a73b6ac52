"""Pure: the order of a study's runs, and how many of them fit into a time.

Every repeat is a block: it has each point once, in an order of its own. So whatever changes during the study,
such as the machine's temperature, changes for all points alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from bareboat_base import units
from bareboat_base.errors import UsageError

#: More do not make an interval narrower by anything that matters.
MOST_REPEATS = 1_000
LEAST_REPEATS = 2
#: With fewer, whose deviation is hardly known, no number is suggested, and nothing is equivalent.
DECIDING_REPEATS = 8


def few(repeats: int) -> str:
    """That so few repeats decide nothing; "" where they may be enough."""
    if repeats >= DECIDING_REPEATS:
        return ""
    return f"{repeats} runs are too few to decide; use at least {DECIDING_REPEATS}, better 12"


def schedule(seed: int, points: int, repeats: int) -> list[tuple[int, int]]:
    """(run, point) of all runs in their order; run 0 of each point is its warm-up."""
    return [
        (run, point)
        for run in range(repeats + 1)
        # Drawn for every block from the seed, so that a resumed study continues unchanged.
        for point in random.Random(f"{seed}/points/{run}").sample(range(points), points)
    ]


def repeats_within(study: str, within_s: float, warm_up_s: Sequence[float], alone_s: float = 0.0) -> int:
    """The number of repeats of all points that fit into the time if each takes as long as the warm-ups, which
    took a part of it. `alone_s`: the time of the runs in which each arm is alone.

    Raises UsageError where two repeats do not fit, with the time for as many as may decide.
    """
    once_s = max(sum(warm_up_s), 1e-3)
    repeats = int((within_s - alone_s) / once_s) - 1
    if repeats < LEAST_REPEATS:
        enough_s = alone_s + once_s * (1 + DECIDING_REPEATS)
        step_s = 1 if enough_s < 120 else 60
        enough = units.written(math.ceil(enough_s / step_s) * step_s, "s")
        alone = "; in two repeats each arm also runs alone" if alone_s else ""
        raise UsageError(
            f"{units.written(within_s, 's')} is too short for a warm-up and two repeats: one run of each "
            f"point takes {duration(once_s)}{alone}",
            key="prove.within_s",
            remedy=f"bareboat prove --resume {study} --within {enough}   # for {DECIDING_REPEATS} repeats",
        )
    return min(repeats, MOST_REPEATS)


def seconds_left(done: Mapping[int, Sequence[float]], left: Sequence[tuple[int, int]]) -> float | None:
    """The time that the runs that are left will take, from those that each point had, without its warm-up
    where there are others; None while a point had none. `done`: point -> seconds of its runs in order."""
    total = 0.0
    for _run, point in left:
        known = done.get(point, ())
        if not known:
            return None
        later = known[1:] or known
        total += sum(later) / len(later)
    return total


def duration(seconds: float) -> str:
    """A time for people: "25 ms", "40 s", "12 min", "3 h 5 min"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
