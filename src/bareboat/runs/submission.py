"""Submissions: a run's directory with its script, given to a scheduler or started on this machine.

A run's directory is authoritative: `control` is written by the job script on the compute nodes.

    submission.json   what was submitted, and to which scheduler       output.log  what the job printed
    cancelled         Bareboat cancelled it                     end.json    the cause of a failed run's end
    control/          job.sh     the script                   exit_code   CODE EPOCH
                      rung.N.sh  read when the MPI check fails: the next way to start the ranks
                      starts     one line per start: EPOCH NODE JOB-ID
    ranks/            what containers write
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from bareboat import codec, execute, registry, render
from bareboat.clock import utc_now
from bareboat.errors import BareboatError, PlanError, StoreError, Terminated, ToolError, UsageError
from bareboat.model import Job, Outcome, Plan, Site, Submission
from bareboat.printable import one_line
from bareboat.runs import directory, mpi_checks, provenance
from bareboat.schedulers import CLUSTER, Scheduler, job_name
from bareboat.store import LIST_RUNS, Store, owner

log = logging.getLogger("bareboat")
#: The script that opens a shell in the job's container; a sweep has it next to job.sh.
SHELL = "shell.sh"
#: Of a run on this machine: where its ranks' meters write.
METER = "meter"
#: A busy controller may take long to accept a job.
_SUBMISSION_S = 120.0
_CANCELLATION_S = 30.0
#: Then a line says what is waited for.
_NOTICE_S = 5.0
#: More than any machine has; limits the length of lists.
_MOST_RANKS = 10_000_000
_MOST_JOB_ID = 256


def control_folder(store: Store, run_id: str) -> Path:
    return directory.control(store.run(run_id))


def output_log(store: Store, run_id: str) -> Path:
    return store.run(run_id) / "output.log"


def queue_of(plan: Plan) -> Scheduler:
    scheduler = registry.scheduler(plan.scheduler)
    if scheduler.AT_ONCE:
        raise UsageError(
            f"{plan.scheduler} does not accept submissions", remedy="bareboat run, or --scheduler NAME"
        )
    return scheduler


def describe(plan: Plan, site: Site, run_id: str) -> Submission:
    """The submission, before a scheduler has given it a job ID."""
    here = registry.scheduler(plan.scheduler).AT_ONCE
    facts = site.scheduler(plan.scheduler)
    return Submission(
        run_id=run_id,
        scheduler=plan.scheduler,
        job_id=None,
        name=plan.job.name,
        nodes=plan.job.topology.nodes,
        world_size=plan.job.topology.world_size,
        engine=plan.engine,
        submitted_at=utc_now(),
        plan_digest=render.digest(plan),
        image_digest=plan.image_digest,
        site_digest=codec.digest(site),
        walltime_s=plan.job.walltime_s,
        fabric=None if plan.fabric is UNSET else plan.fabric,
        command=plan.job.command,
        host=site.hostname,
        cluster=facts.settings.get(CLUSTER, "") if facts is not None else "",
        supervisor=owner() if here else "",
    )


def give_to(scheduler: Scheduler, job: Job, script: Path, log: str, *arguments: str) -> str:
    """Submit the script with these arguments; return the job ID. Raises PlanError for a refusal."""
    argv = (*scheduler.submit(str(script), log), *arguments)
    stdin = script.read_text(errors="surrogateescape") if scheduler.SUBMITS_STDIN else None
    try:
        number = scheduler.job_id(submit_by(argv, stdin, job.workdir))
        if not is_job_id(scheduler, number):
            raise ToolError(
                f"{argv[0]} returned {one_line(number)!r}, which is not a {scheduler.NAME} job ID"
            )
    except ToolError as error:
        raise ToolError(
            f"{error.message}: the job may or may not have been submitted",
            context=error.context,
            remedy=f"{scheduler.LIST}   # if it lists {job_name(job)}, cancel that job or let it run "
            "before you submit again",
        ) from None
    return number


def submit_by(argv: Sequence[str], stdin: str | None, folder: str | None = None) -> Outcome:
    """Run a submit command, which may take long, and may leave the job itself behind."""
    return execute.run(
        argv, stdin=stdin, timeout_s=execute.patience(_SUBMISSION_S), notice_s=_NOTICE_S, folder=folder,
        may_leave=True,
    )  # fmt: skip


def cancel_by(argv: Sequence[str]) -> Outcome:
    """Run a scheduler's command that cancels a job, which has time: a job must not go on unseen."""
    return execute.run(argv, timeout_s=execute.patience(_CANCELLATION_S), notice_s=_NOTICE_S)


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


def submit(store: Store, plan: Plan, site: Site) -> Submission:
    """Submit the plan's script. Raises PlanError, and leaves nothing, when the scheduler refuses it."""
    scheduler = queue_of(plan)
    submission = begin(store, plan, site)
    script = control_folder(store, submission.run_id) / "job.sh"
    return submit_script(store, scheduler, plan, submission, script)


def begin(
    store: Store, plan: Plan, site: Site, *, job_id: str | None = None, unkept: tuple[str, ...] = ()
) -> Submission:
    """A run's directory with its script, before the script is submitted or started."""
    run_id = store.new_run(plan.job.name)
    folder = store.run(run_id)
    submission = msgspec.structs.replace(describe(plan, site, run_id), job_id=job_id, unkept=unkept)
    script = folder / directory.CONTROL / "job.sh"
    with store.whole_run(run_id):
        (folder / directory.CONTROL).mkdir()
        (folder / directory.RANKS).mkdir()
        if submission.supervisor:
            (folder / METER).mkdir()
        else:  # the nodes must see it when the job starts
            (folder / directory.CONTROL / "logs").mkdir()
            write_sampler(store, folder / directory.CONTROL)
        for name, text in render.scripts(plan, render.Place(run_id, str(folder))):
            store.write(script.with_name(name), os.fsencode(text))
        write_shell(store, plan, script.parent)
        store.write(folder / "plan.json", codec.to_json(render.shown(plan)))
        provenance.keep(store, run_id, plan.job, site)
        store.write(folder / "submission.json", codec.to_json(submission))
    return submission


def write_sampler(store: Store, folder: Path) -> None:
    """Write the sampler where the nodes of a job find it."""
    store.write(folder / execute.SAMPLER.name, execute.SAMPLER.read_bytes())


def submit_script(
    store: Store, scheduler: Scheduler, plan: Plan, submission: Submission, script: Path
) -> Submission:
    """Submit, and store the submission with its job ID; a refused run leaves nothing."""
    run_id = submission.run_id
    # A stop in between would lose the ID of a queued job.
    with going_on(run_id), execute.interrupts_held():
        try:
            job_id = give_to(scheduler, plan.job, script, str(output_log(store, run_id)))
        except PlanError:
            store.discard(store.run(run_id))
            raise
        submission = msgspec.structs.replace(submission, job_id=job_id)
        with store.whole_run(run_id):
            keep_job_id(store, scheduler, submission)
        try:
            mpi_checks.expect(store, plan, run_id, points=submission.points)
        except StoreError as error:  # the job runs anyway
            log.warning("the result of the MPI check will not be stored: %s", error.message)
    return submission


def keep_job_id(store: Store, scheduler: Scheduler, submission: Submission) -> None:
    """Write the submission with its job ID. If that fails, cancel the job, which could not be found again,
    and raise StoreError."""
    assert submission.job_id is not None
    try:
        store.write(store.run(submission.run_id) / "submission.json", codec.to_json(submission))
    except StoreError as error:
        argv = scheduler.cancel(submission.job_id)
        is_cancelled = cancel_by(argv).ok
        job = f"{scheduler.NAME} job {submission.job_id}"
        done = f"{job} was cancelled" if is_cancelled else f"{job} is still in the queue"
        remedy = error.remedy if is_cancelled else shlex.join(argv)
        raise StoreError(f"{error.message}; {done}", context=error.context, remedy=remedy) from None


def read(store: Store, run_id: str) -> Submission:
    path = store.run(run_id) / "submission.json"
    if not os.path.lexists(path):
        if (element := _element(store, run_id)) is not None:
            return element
        if not path.parent.exists():
            raise store.missing_run(run_id)
        raise UsageError(
            f"{run_id} is not a run, but a study or a run that was stopped before it started",
            remedy=LIST_RUNS,
        )
    made = store.read(path, Submission)
    scheduler = _scheduler(made.scheduler)
    is_started = scheduler is not None and bool(made.supervisor) == scheduler.AT_ONCE
    for is_right, what in (
        (made.run_id == run_id, "it names another run"),
        (is_started, f"it names the scheduler {one_line(made.scheduler)!r}"),
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
    if int(number) >= whole.points:
        return None
    job_id = whole.job_id
    if job_id is not None:
        job_id = registry.scheduler(whole.scheduler).element(job_id, int(number))
    return msgspec.structs.replace(whole, run_id=run_id, job_id=job_id, points=0)


def find(store: Store, name: str) -> str:
    """The run of this name, else the newest run of the job of this name; a number after a dot names a point.
    Other names are returned unchanged."""
    with contextlib.suppress(UsageError):  # a job's name may hold anything
        if store.run(name).exists():
            return name
    if (found := store.newest_of(name)) is not None:
        return found
    job, _, number = name.rpartition(".")
    whole = store.newest_of(job) if number.isdecimal() else None
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


def write_shell(store: Store, plan: Plan, folder: Path) -> None:
    """Write the script with which `attach` opens a shell in the job's container."""
    text = render.shell_script(plan)
    if text is not None:
        store.write(folder / SHELL, os.fsencode(text))
