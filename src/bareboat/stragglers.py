"""Ranks that work slower than the others, by what they report. Pure.

A rank that reports appends a line `STEP SECONDS` for each step: the seconds of its own work, without the wait
for the others. In data-parallel training all ranks' steps take equally long by the clock, since each waits
for the slowest; only their own work tells. Nothing is guessed from CPU time: ranks that wait may spin.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct

#: Of the steps that all ranks have reported, so many of the newest are looked at.
WINDOW = 50
#: A rank is told of when its own work takes so many times that of the others.
THRESHOLD = 1.2
#: How often a rank may be told of that is as quick as the others (a sign test, corrected for their number).
ERROR = 0.01


class Straggler(Struct, frozen=True, kw_only=True):
    """The slowest rank. `ratio`: of its own work to the median of the others', the median over `steps` steps.
    `also`: how many others are slow, too; `whole_node`: the slow ranks are all those of its node."""

    rank: int
    node: str
    ratio: float
    steps: int
    ranks: int
    also: int = 0
    whole_node: bool = False

    @property
    def text(self) -> str:
        others = "the other rank's" if self.ranks == 2 else "the median of the others"
        who = f"node {self.node}" if self.whole_node and self.also else f"rank {self.rank} on {self.node}"
        more = f", and {self.also} more" if self.also and not self.whole_node else ""
        return f"{who}: {self.ratio:.1f}x {others} in the last {self.steps} steps{more}"


def read_steps(text: str) -> dict[int, float]:
    """STEP -> seconds of the lines `STEP SECONDS`. Others are a sign of life and no more, and so is what a
    rank reported before it started anew, at a lower step."""
    found: dict[int, float] = {}
    newest = None
    for line in text.splitlines():
        words = line.split()
        try:
            step, seconds = int(words[0]), float(words[1])
        except (IndexError, ValueError):
            continue
        # Sums and ratios of what nobody can have measured would be no numbers.
        if not (0 <= step < 1 << 63 and 1e-12 <= seconds <= 1e12):
            continue
        if newest is not None and step <= newest:
            found.clear()
        found[step] = seconds
        newest = step
    return found


def find_straggler(reports: Mapping[int, Mapping[int, float]], nodes: Sequence[str]) -> Straggler | None:
    """The slowest of all ranks, if it is slow for sure. `reports`: rank -> step -> seconds of its own work;
    `nodes`: each rank's. None as long as a rank has reported nothing, or too little."""
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
    """Whether chance alone would hardly do it."""
    # One that is as quick as the others is slower than their median in every other step.
    count, slower = len(ratios), sum(ratio > 1 for ratio in ratios)
    chance = sum(math.comb(count, k) for k in range(slower, count + 1)) * 0.5**count
    return chance * ranks <= ERROR


def _median_without(in_order: list[float], value: float) -> float:
    """The median of the sorted values without one of this value."""
    left_out, rest = bisect_left(in_order, value), len(in_order) - 1

    def at(index: int) -> float:
        return in_order[index if index < left_out else index + 1]

    return at(rest // 2) if rest % 2 else (at(rest // 2 - 1) + at(rest // 2)) / 2
