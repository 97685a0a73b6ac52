"""Pure: find ranks that work slower than the others, from their reports.

A rank appends a line `STEP SECONDS` for each step: the seconds of its own work, without waiting for others.
In data-parallel training all ranks' steps take equally long by the clock, since each waits for the slowest;
only their own work shows the difference. CPU time is not used, because waiting ranks may spin.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from bareboat.model import Straggler

#: The number of newest steps, reported by all ranks, that are compared.
WINDOW = 50
#: A rank is reported when its own work takes this many times that of the others.
THRESHOLD = 1.2
#: Probability of reporting a rank that is not slow (sign test, corrected for the ranks' number).
ERROR = 0.01


def read_steps(text: str) -> dict[int, float]:
    """STEP -> seconds from lines `STEP SECONDS`. Other lines only show that the rank is alive, as do reports
    from before a restart at a lower step."""
    found: dict[int, float] = {}
    newest = None
    for line in text.splitlines():
        words = line.split()
        try:
            step, seconds = int(words[0]), float(words[1])
        except (IndexError, ValueError):
            continue
        # Impossible measurements would make sums and ratios non-finite.
        if not (0 <= step < 1 << 63 and 1e-12 <= seconds <= 1e12):
            continue
        if newest is not None and step <= newest:
            found.clear()
        found[step] = seconds
        newest = step
    return found


def find_straggler(reports: Mapping[int, Mapping[int, float]], nodes: Sequence[str]) -> Straggler | None:
    """The slowest of all ranks, if it is significantly slow. `reports`: rank -> step -> seconds of its own
    work; `nodes`: each rank's. None while a rank has reported too little."""
    size = len(nodes)
    if size < 2 or set(reports) != set(range(size)):
        return None
    steps = sorted(set.intersection(*(set(found) for found in reports.values())))[-WINDOW:]
    if not steps or size * 0.5 ** len(steps) > ERROR:
        return None
    from statistics import median  # here, because every start imports this module

    ratios: list[list[float]] = [[] for _ in range(size)]
    for step in steps:
        taken = [reports[rank][step] for rank in range(size)]
        in_order = sorted(taken)
        for rank, seconds in enumerate(taken):
            ratios[rank].append(seconds / _median_without(in_order, seconds))
    usual = enumerate(map(median, ratios))
    slow = {rank: ratio for rank, ratio in usual if ratio >= THRESHOLD and _is_sure(ratios[rank], size)}
    if not slow:
        return None
    worst = max(slow, key=lambda rank: (slow[rank], -rank))
    here = {rank for rank in range(size) if nodes[rank] == nodes[worst]}
    return Straggler(
        rank=worst,
        node=nodes[worst],
        ratio=round(slow[worst], 3),
        steps=len(steps),
        ranks=size,
        also=len(slow) - 1,
        whole_node=set(slow) == here,
    )


def _is_sure(ratios: list[float], ranks: int) -> bool:
    """Whether the difference is significant."""
    # A rank that is not slow exceeds the others' median in half of the steps.
    count, slower = len(ratios), sum(ratio > 1 for ratio in ratios)
    chance = sum(math.comb(count, k) for k in range(slower, count + 1)) * 0.5**count
    return chance * ranks <= ERROR


def _median_without(in_order: list[float], value: float) -> float:
    """The median of the sorted values without one of this value."""
    left_out, rest = bisect_left(in_order, value), len(in_order) - 1

    def at(index: int) -> float:
        return in_order[index if index < left_out else index + 1]

    return at(rest // 2) if rest % 2 else (at(rest // 2 - 1) + at(rest // 2)) / 2
