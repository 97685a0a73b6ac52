"""Pure: the steps of a job, from those of its ranks."""

from __future__ import annotations

import math
import statistics as descriptive
from collections.abc import Sequence
from dataclasses import dataclass

from bareboat_study.meterlog import Process

LATEST, RATES = "latest rank", "sum of rates"


@dataclass(frozen=True, slots=True)
class JobSteps:
    """When each step began, in nanoseconds of rank 0's clock, and how many seconds it took. `clock`: "latest
    rank" or "sum of rates"."""

    opened_ns: tuple[int, ...]
    seconds: tuple[float, ...]
    clock: str


def of_ranks(ranks: Sequence[Process], *, is_one_machine: bool) -> JobSteps:
    """The steps of a job by its ranks.

    Ranks that keep step end a step when the last of them does. Independent ranks add their rates: the time of
    all steps is that in which all ranks together do as many. `is_one_machine`: the ranks share a clock;
    otherwise the clocks are aligned by the median difference of the ends of their steps.
    """
    times = [rank.step_times() for rank in ranks]
    steps = min(map(len, times))
    times = [own[:steps] for own in times]
    if len(ranks) > 1 and all(rank.independent for rank in ranks):
        return _sum_of_rates(times)
    if not is_one_machine:
        times = [_aligned(own, times[0]) for own in times]
    opened: list[int] = []
    seconds: list[float] = []
    before = 0
    for step in range(steps):
        # A pause at the gate is no part of a step; the ranks that are still at the last step are.
        began = max(before, min(own[step][0] for own in times))
        before = max(own[step][1] for own in times)
        opened.append(began)
        seconds.append((before - began) / 1e9)
    return JobSteps(tuple(opened), tuple(seconds), LATEST)


def _sum_of_rates(times: Sequence[Sequence[tuple[int, int]]]) -> JobSteps:
    own = [[(end - began) / 1e9 for began, end in rank] for rank in times]
    # The first step is no part of a window, and not typical.
    totals = [math.fsum(rank[1:]) or math.fsum(rank) for rank in own]
    together = len(own) / math.fsum(1 / total for total in totals) if min(totals, default=0) > 0 else 0.0
    weights = [together / total / len(own) if total > 0 else 1 / len(own) for total in totals]
    seconds = tuple(
        math.fsum(weight * rank[step] for weight, rank in zip(weights, own, strict=True))
        for step in range(len(own[0]))
    )
    return JobSteps(tuple(began for began, _ in times[0]), seconds, RATES)


def _aligned(own: Sequence[tuple[int, int]], first: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    if not own:
        return []
    offset = round(descriptive.median(a[1] - b[1] for a, b in zip(own, first, strict=True)))
    return [(began - offset, end - offset) for began, end in own]
