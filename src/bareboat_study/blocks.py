"""Pure: the order of a study's runs, and how many of them fit into a time.

Every repeat is a block: it has each point once, in an order of its own. So whatever changes during the study,
such as the machine's temperature, changes for all points alike.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

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


def repeats_within(within_s: float, warm_up_s: Sequence[float]) -> int:
    """The number of repeats of all points that fit into the time, of which the warm-ups took a part.

    The warm-ups are a safe estimate: they are slower than later runs. Raises UsageError where two repeats do
    not fit.
    """
    once_s = max(sum(warm_up_s), 1e-3)
    repeats = int((within_s - once_s) / once_s)
    if repeats < LEAST_REPEATS:
        needed, enough_s = duration(once_s * (1 + LEAST_REPEATS)), once_s * (2 + LEAST_REPEATS)
        enough = f"{int(enough_s) + 1}s" if enough_s < 120 else f"{int(enough_s / 60) + 1}m"
        raise UsageError(
            f"one run of each point takes {duration(once_s)}, and a study needs the warm-up and two repeats: "
            f"{needed}; within_s is {duration(within_s)}",
            key="prove.within_s",
            remedy=f"resume with more time: --within {enough}",
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
