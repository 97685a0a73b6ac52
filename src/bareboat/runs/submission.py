"""Submissions: how a run was started, here or by a scheduler, from its directory.

A run's directory is authoritative: `control` is written by the job script on the compute nodes.

    submission.json   what was submitted, and to which scheduler       output.log  what the job printed
    scheduler.log     what the scheduler wrote; scheduler.log.*  the same of the elements of an array
    cancelled         Bareboat cancelled it                     end.json    the cause of a failed run's end
    control/          job.sh     the script                   exit_code   CODE EPOCH
                      lib-*.sh   its library of functions
                      rung.N.sh  read when the MPI check fails: the next way to start the ranks
                      starts     one line per start: EPOCH NODE JOB-ID
                      environment  values of environment_from (`runs.environment`)
    ranks/            what containers write
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bareboat import registry
from bareboat.model import JobStart, Outcome, Submission
from bareboat.runs import directory, queries
from bareboat.schedulers import Scheduler
from bareboat_base import execute
from bareboat_base.errors import BareboatError, StoreError, Terminated, UsageError
from bareboat_base.expressions import expression
from bareboat_base.printable import quoted
from bareboat_images.store import Store

#: The script that opens a shell in the job's container; a sweep has it next to job.sh.
SHELL = "shell.sh"
_CANCELLATION_S = 30.0
#: Seconds until a line reports the reason for waiting.
NOTICE_S = 5.0
#: More than any machine has; limits the length of lists.
_MOST_RANKS = 10_000_000
_MOST_JOB_ID = 256
#: EPOCH NODE JOB-ID
_START = expression(r"(\d{1,11}) ([\w.-]{1,255}) ([\w.\[\]ƒ-]{1,256})", re.ASCII)


class _Scheduling(msgspec.Struct, frozen=True):
    after: tuple[str, ...] = ()


class _Job(msgspec.Struct):
    image: str = "capture"
    workdir: str | None = None
    scheduling: _Scheduling = _Scheduling()


class _Plan(msgspec.Struct):
    job: _Job


def plan_file(store: Store, run_id: str) -> Path:
    """The plan of a run; of a point, that of its sweep."""
    folder = store.run(run_id)
    return (folder.parents[1] if folder.parent.name == "points" else folder) / "plan.json"


def planned_job(store: Store, run_id: str) -> _Job:
    """What is read of a run's job in its plan. Raises StoreError."""
    return store.read(plan_file(store, run_id), _Plan).job


def control_folder(store: Store, run_id: str) -> Path:
    return directory.control(store.run(run_id))


def output_log(store: Store, run_id: str) -> Path:
    return store.run(run_id) / "output.log"


def scheduler_log(store: Store, run_id: str) -> Path:
    return store.run(run_id) / "scheduler.log"


def scheduler_logs(store: Store, made: Submission) -> list[Path]:
    """The files with what the scheduler itself wrote about a run; of a point, also as an element of an
    array."""
    found = [scheduler_log(store, made.run_id)]
    name, _, number = made.run_id.rpartition(".")
    if not made.supervisor and number.isdecimal() and store.run(made.run_id).parent.name == "points":
        whole = str(scheduler_log(store, name))
        found += map(Path, registry.scheduler(made.scheduler).element_logs(whole, int(number)))
    return [path for path in found if os.path.lexists(path)]


def cancel_by(argv: Sequence[str]) -> Outcome:
    """Run a scheduler's command that cancels a job, which has time: a job must not go on unseen."""
    watch = execute.Watch(notice_s=NOTICE_S)
    return queries.run(argv, timeout_s=execute.patience(_CANCELLATION_S), watch=watch)


@contextlib.contextmanager
def going_on(run_id: str) -> Iterator[None]:
    """Inside, stopping Bareboat adds the note that the run continues."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as stop:
        stop.add_note(
            f"{run_id} continues; to wait: bareboat wait {run_id}; to cancel: bareboat cancel {run_id}"
        )
        raise


def read(store: Store, run_id: str) -> Submission:
    path = store.run(run_id) / "submission.json"
    if not os.path.lexists(path):
        if (element := _element(store, run_id)) is not None:
            return element
        if not path.parent.exists():
            raise store.missing_run(run_id)
        raise UsageError(
            f"{run_id} is not a run, but a study or a run that was stopped before it started",
            remedy=store.LIST_RUNS,
        )
    made = store.read(path, Submission)
    scheduler = _scheduler(made.scheduler)
    is_started = scheduler is not None and bool(made.supervisor) == scheduler.IS_LOCAL
    for is_right, what in (
        (made.run_id == run_id, "it names another run"),
        (is_started, f"it names the scheduler {quoted(made.scheduler, limit=200)}"),
        (0 < made.nodes <= made.world_size <= _MOST_RANKS, "its numbers of nodes and ranks"),
        (0 <= made.points <= _MOST_RANKS, "its number of points"),
        (made.job_id is None or scheduler is None or is_job_id(scheduler, made.job_id), "its job ID"),
    ):
        if not is_right:
            raise directory.damaged(path, OSError(0, f"it is not a valid submission: {what}"))
    return made


def _scheduler(name: str) -> Scheduler | None:
    try:
        return registry.scheduler(name)
    except BareboatError:
        return None


def _element(store: Store, run_id: str) -> Submission | None:
    """A point of a sweep that was submitted as an array job."""
    name, _, number = run_id.rpartition(".")
    if not number.isdecimal() or not name or not is_submitted(store, name):
        return None
    whole = read(store, name)
    if int(number) >= whole.points > 0:
        reason = f"{run_id} not found: the points of {name} are 0 to {whole.points - 1}"
        raise UsageError(reason, remedy=f"bareboat logs {name}.0")
    if not whole.points:
        return None
    job_id = whole.job_id
    if job_id is not None:
        job_id = registry.scheduler(whole.scheduler).element(job_id, int(number))
    return msgspec.structs.replace(whole, run_id=run_id, job_id=job_id, points=0)


def job_id_now(store: Store, submission: Submission) -> str | None:
    """The current job ID; None where none is known."""
    return next(reversed(job_ids(store, submission)), None)


def job_ids(store: Store, submission: Submission) -> list[str]:
    """The run's job IDs, the current one last: where the scheduler cannot requeue, a job resubmits itself.
    The new job may start before the old one has written the ID; and of a job whose submission returned no ID,
    the script wrote it. Raises StoreError for text that is not a job ID: it becomes part of a command."""
    path = control_folder(store, submission.run_id) / "agains"
    first = [] if submission.job_id is None else [submission.job_id]
    later = (directory.text(path) or "").split()
    began = () if submission.supervisor else starts(store, submission.run_id)
    # The script may know the ID of the first job in another form.
    if began and (last := began[-1].job_id) not in (*later, *(began[0].job_id for _ in first)):
        path = path.with_name("starts")
        later.append(last)
    if later and not is_job_id(registry.scheduler(submission.scheduler), later[-1]):
        raise directory.damaged(path, OSError(0, f"{quoted(later[-1], limit=40)} is not a job ID"))
    return first + later


def starts(store: Store, run_id: str) -> tuple[JobStart, ...]:
    """The starts of a run; incomplete lines, for example from a full file system, are ignored."""
    text = directory.text(control_folder(store, run_id) / "starts") or ""
    return tuple(
        JobStart(at_epoch_s=int(part[1]), node=part[2], job_id=part[3])
        for line in text.splitlines()
        if (part := _START.fullmatch(line)) is not None
    )


def find(store: Store, name: str, accepts: Callable[[str], bool] | None = None) -> str:
    """The run of this name, else the newest run of the job of this name, of those that `accepts` takes if
    there is one; a number after a dot names a point. Other names are returned unchanged."""
    with contextlib.suppress(UsageError):  # a job's name may hold anything
        if store.run(name).exists():
            return name
    if (found := store.newest_of(name, accepts)) is not None:
        return found
    job, _, number = name.rpartition(".")
    whole = store.newest_of(job, accepts) if number.isdecimal() else None
    return name if whole is None else f"{whole}.{number}"


def is_submitted(store: Store, run_id: str) -> bool:
    """Whether the run was submitted, or started on this machine."""
    return os.path.lexists(store.run(run_id) / "submission.json")


def submitted(store: Store) -> list[str]:
    """The runs that were submitted or started, oldest first."""
    return [name for name in store.runs() if is_submitted(store, name)]


def is_job_id(scheduler: Scheduler, text: str) -> bool:
    """Whether the text is a job ID of the scheduler: only then may it be part of a command."""
    return len(text) <= _MOST_JOB_ID and re.fullmatch(scheduler.JOB_ID_FORM, text, re.ASCII) is not None


def failed_dependency(store: Store, made: Submission) -> str:
    """Why a job that its scheduler has forgotten never started: a run of this store that it depended on and
    that did not succeed; "" for none."""
    try:
        after = planned_job(store, made.run_id).scheduling.after
        for run_id in submitted(store) if after else ():
            other = read(store, run_id)
            if other.scheduler != made.scheduler:
                continue
            numbers = job_ids(store, other)
            if not set(after) & {*numbers}:
                continue
            for folder in (store.run(run_id), *sorted(store.run(run_id).glob("points/*"))):
                if (end := directory.exit_of(folder)) is not None and end[0]:
                    return f"it waited for {run_id}, whose exit code is {end[0]}"
            if numbers[-1] not in after:
                job = "the first job" if other.job_id in after else "an earlier job"
                return f"it waited for {job} of {run_id}, which went on as another job"
    except StoreError:  # a damaged run is reported as itself
        pass
    return ""
