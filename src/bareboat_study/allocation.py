"""A study's allocation: one job of a scheduler that measures all arms of a point on the same nodes.

    runs/ID/points/N/arms/NUMBER/      each arm's job script, which the allocation's script starts
                     submission.json   the newest allocation; its script is control/job.sh
                     control/runs/NNNN/   a complete run, as the nodes wrote it, until it is collected
                     control/failed/      a warm-up that failed

The directory of a point is that of a run, so `status`, `logs`, `cancel` and `attach` take the name ID.N.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bareboat import registry, render
from bareboat.model import Job, Plan, Study, Submission
from bareboat.plan.kernel_cache import of_study
from bareboat.render import study_script
from bareboat.runs import creation, dependencies, directory, environment, submission
from bareboat.schedulers import Scheduler
from bareboat_base import codec, execute
from bareboat_base.clock import utc_now
from bareboat_base.files import trees
from bareboat_images.store import Store
from bareboat_study import turns
from bareboat_study.metrics import files_of

_ARMS = "arms"
#: In `control`: the number of the newest job. An older one, which nobody knew of, ends.
_NUMBER = "allocation"
#: What an earlier allocation of the point left; the nodes' list of its starts stays.
_OF_ONE = ("cancelled", "end.json", "exit_code", "record.json")
_OF_ONE_SCRIPT = ("exit_code", "progress", "signals")
#: Time beyond what earlier runs took, for slower nodes and the start of the job.
_SLACK, _START_S = 1.25, 120.0


def arm_script(plan: Plan, study_id: str, number: int) -> str:
    """The script of an arm: in an allocation it is started for each run, with a directory of its own."""
    is_here = registry.scheduler(plan.scheduler).IS_LOCAL
    plan = of_study(plan, f"{study_id}-{number}")
    return render.script(plan, None if is_here else render.GIVEN, alone=True)


def write_arms(store: Store, study: Study, plans: Sequence[Plan]) -> None:
    """Write the scripts of the arms, with those of the further ways to start their ranks, and the sampler."""
    creation.write_sampler(store, store.run(study.id).parent.parent)
    for number, plan in enumerate(plans):
        folder = store.run(study.id) / _ARMS / str(number)
        for name, text in render.scripts(of_study(plan, f"{study.id}-{number}"), render.GIVEN):
            store.write(folder / name, os.fsencode(text))


def script(
    store: Store, study: Study, runs: Sequence[int], time_limit_s: int | None, *, number: int = 1
) -> str:
    """The job script that does these runs, with its library. `number`: of the point's jobs."""
    scheduler = registry.scheduler(study.job.scheduler or registry.HERE)
    return study_script.script(
        scheduler, _described(store, scheduler, study, runs, time_limit_s, number), alone=True
    )


def _described(
    store: Store, scheduler: Scheduler, study: Study, runs: Sequence[int], limit_s: int | None, number: int
) -> study_script.Allocation:
    return study_script.Allocation(
        study=study.id,
        mark=store.mark(study.id),
        folder=str(store.run(study.id)),
        nodes=study.job.topology.nodes,
        directives=scheduler.directives(_job(study.job, limit_s), study.site),
        arms=[arm.name for arm in study.arms],
        runs=[(run, turns.starts(study, run)) for run in sorted({0, *runs})],
        time_limit_s=limit_s,
        files=files_of(study.metrics, study.job.workdir or "/"),
        number=number,
    )


def _job(job: Job, time_limit_s: int | None) -> Job:
    """The job that is requested: without a warning before its end."""
    scheduling = msgspec.structs.replace(job.scheduling, warning_s=0)
    return msgspec.structs.replace(job, walltime_s=time_limit_s, scheduling=scheduling)


def time_limit_s(asked_s: int | None, taken_s: Sequence[float], left: int) -> int | None:
    """The time limit of an allocation for so many runs, in seconds: what was asked for, or less where earlier
    runs show that less is enough. `taken_s`: of the runs that are complete, warm-up first."""
    if asked_s is None or not taken_s:
        return asked_s
    mean_s = sum(taken_s) / len(taken_s)
    needed_s = _START_S + _SLACK * (max(taken_s) + left * mean_s)
    return min(asked_s, math.ceil(needed_s / 60) * 60)


def submit(store: Store, study: Study, runs: Sequence[int], limit_s: int | None) -> Submission:
    """Submit a job that does these runs of the study. Raises PlanError where the scheduler refuses it."""
    assert study.job.scheduler is not None
    scheduler = registry.scheduler(study.job.scheduler)
    folder = store.run(study.id)
    if study.job.scheduling.after and not submission.is_submitted(store, study.id):
        after = dependencies.job_ids(store, scheduler.NAME, study.job.scheduling.after)
    else:  # an earlier allocation waited for them
        after = ()
    scheduling = msgspec.structs.replace(study.job.scheduling, after=after)
    study = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, scheduling=scheduling))
    control = folder / directory.CONTROL
    for path in (*(folder / name for name in _OF_ONE), *(control / name for name in _OF_ONE_SCRIPT)):
        path.unlink(missing_ok=True)
    with store.guarded():
        trees.remove_tree(failed_folder(store, study.id))
    (control / "runs").mkdir(parents=True, exist_ok=True)
    number = 1 + _number(control / _NUMBER)
    store.write(control / _NUMBER, f"{number}\n".encode())
    path = control / "job.sh"
    described = _described(store, scheduler, study, runs, limit_s, number)
    for name, text in study_script.scripts(scheduler, described):
        store.write(control / name, os.fsencode(text))
    environment.write(store, control, study.job.environment_from)
    topology = study.job.topology
    made = Submission(
        run_id=study.id,
        scheduler=scheduler.NAME,
        job_id=None,
        name=study.job.name,
        nodes=topology.nodes,
        world_size=topology.world_size,
        engine=study.arms[-1].engine,
        submitted_at=utc_now(),
        plan_digest=codec.digest([arm.plan_digest for arm in study.arms]),
        image_digest=None,
        site_digest=codec.digest(study.site),
        walltime_s=limit_s,
        command=study.job.command,
        host=study.site.hostname,
    )
    # A stop in between would lose the ID of a queued job.
    with execute.interrupts_held():
        pattern = scheduler.log_pattern(str(submission.scheduler_log(store, study.id)))
        job_id = creation.give_to(scheduler, study.job, path, pattern)
        made = msgspec.structs.replace(made, job_id=job_id)
        creation.keep_job_id(store, scheduler, made)
    return made


def _number(path: Path) -> int:
    """The number of the newest job; 0 before the first."""
    try:
        return int(directory.text(path) or 0)
    except ValueError:
        raise directory.damaged(path, OSError(0, "it does not hold a number")) from None


def runs_folder(store: Store, study_id: str) -> Path:
    """Where the nodes write complete runs."""
    return store.run(study_id) / directory.CONTROL / "runs"


def failed_folder(store: Store, study_id: str) -> Path:
    """The warm-up that failed."""
    return store.run(study_id) / directory.CONTROL / "failed"
