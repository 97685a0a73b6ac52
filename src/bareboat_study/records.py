"""Pure: the record of an arm in a run, however it was measured, and a job's steps by those of its ranks."""

from __future__ import annotations

import math
import statistics as descriptive
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from bareboat.model import Arm, Phases, Record, Study, Window, kept_result
from bareboat_base import codec
from bareboat_base.errors import BareboatError
from bareboat_study import validity
from bareboat_study.meterlog import Process
from bareboat_study.patterns import Curve


@dataclass(frozen=True, slots=True)
class JobSteps:
    """When each step began, in nanoseconds of rank 0's clock, and how many seconds it took."""

    opened_ns: tuple[int, ...]
    seconds: tuple[float, ...]


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
    return JobSteps(tuple(opened), tuple(seconds))


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
    return JobSteps(tuple(began for began, _ in times[0]), seconds)


def _aligned(own: Sequence[tuple[int, int]], first: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    if not own:
        return []
    offset = round(descriptive.median(a[1] - b[1] for a, b in zip(own, first, strict=True)))
    return [(began - offset, end - offset) for began, end in own]


def make(
    study: Study,
    run: int,
    arm: Arm,
    *,
    first: Process | None = None,
    numbers: Mapping[str, float] | None = None,
    curves: Mapping[str, Curve] | None = None,
    fault: BareboatError | None = None,
    **measured: Any,
) -> Record:
    """The record; run 0 is the warm-up. `first`: rank 0 with its meter. `numbers`, `curves`: the metrics that
    were read from the output and from files. `measured`: the other fields of a record."""
    results = (first.results if first else {}) | dict(numbers or {})
    return Record(
        study=study.id,
        run=run,
        arm=arm.name,
        warm_up=run == 0,
        plan_digest=arm.plan_digest,
        image_digest=study.image.digest if arm.image_digest is UNSET else arm.image_digest,
        site_digest=codec.digest(study.site),
        samples_per_step=first.samples_per_step if first else None,
        results={name: kept_result(value) for name, value in results.items()},
        diverged=first.diverged if first else {},
        series=dict(curves) if curves else UNSET,
        design="" if run == 0 else validity.design_digest(study),
        ended_because="" if fault is None else fault.message,
        **measured,
    )


def phases(first: Process, steps: JobSteps, *, began_s: float, ended_s: float) -> Phases:
    """The parts of a run's time, as rank 0 saw them. `began_s`, `ended_s`: of the arm, by the same clock;
    parts between clocks of two machines are 0, which is not compared."""
    last_ns = first.stretches[-1][1][-1] if first.stretches else first.start_ns
    loaded_s = first.loaded_ns / 1e9
    is_here = began_s <= loaded_s <= ended_s
    return Phases(
        process_start_s=loaded_s - began_s if is_here else 0.0,
        import_s=(first.imported_ns - first.loaded_ns) / 1e9,
        setup_s=(first.start_ns - first.imported_ns) / 1e9,
        first_step_s=steps.seconds[0] if steps.seconds else 0.0,
        steady_s=sum(steps.seconds[1:]),
        finish_s=max(0.0, ended_s - max(last_ns, first.released_ns) / 1e9) if is_here else 0.0,
    )


def windows(study: Study, steps: JobSteps, run_began_s: float) -> tuple[Window, ...]:
    """Of an arm that is alone: the steps after the first, in windows of equal numbers. The same steps in each
    arm make a block."""
    each = study.steps_per_window or 1
    return tuple(
        Window(
            block=block,
            began_s=max(0.0, steps.opened_ns[begin] / 1e9 - run_began_s),
            step_s=steps.seconds[begin : begin + each],
        )
        for block, begin in enumerate(range(1, len(steps.seconds) - each + 1, each))
    )
