"""Pure: the record of an arm in a run, however it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from bareboat.model import Arm, Phases, Record, Study, Window, kept_result
from bareboat_base import codec
from bareboat_study import validity
from bareboat_study.job_steps import JobSteps
from bareboat_study.meterlog import Process
from bareboat_study.patterns import Curve


def make(
    study: Study,
    run: int,
    arm: Arm,
    *,
    first: Process | None = None,
    numbers: Mapping[str, float] | None = None,
    curves: Mapping[str, Curve] | None = None,
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
