"""How a run begins: its directory with the script, given to a scheduler or started on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from bareboat import registry, render
from bareboat.model import Job, Outcome, Plan, Site, Submission, sweep
from bareboat.runs import directory, environment, mpi_checks, provenance
from bareboat.runs.submission import (
    NOTICE_S,
    SHELL,
    cancel_by,
    control_folder,
    going_on,
    is_job_id,
    scheduler_log,
)
from bareboat.schedulers import CLUSTER, Scheduler, inherited
from bareboat.schedulers.requests import job_name
from bareboat_base import codec, execute
from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError, PlanError, StoreError, Terminated, ToolError, UsageError
from bareboat_base.printable import quoted
from bareboat_images.store import Store, owner

log = logging.getLogger("bareboat")
#: A busy controller may take long to accept a job.
_SUBMISSION_S = 120.0


def submit(store: Store, plan: Plan, site: Site) -> Submission:
    """Submit the plan's script; a sweep as one array job, or as a job for each point where arrays are not
    supported. Raises PlanError, and leaves nothing, when the scheduler refuses it."""
    scheduler = _queue_of(plan)
    if plan.job.sweep is not None:
        return _submit_sweep(store, scheduler, plan, site)
    submission = begin(store, plan, site)
    script = control_folder(store, submission.run_id) / "job.sh"
    return _submit_script(store, scheduler, plan, submission, script)


def _submit_sweep(store: Store, scheduler: Scheduler, plan: Plan, site: Site) -> Submission:
    assert plan.job.sweep is not None
    from bareboat.runs import sweeps

    made = make_sweep(store, plan, site)
    run_id = made.run_id
    folder = store.run(run_id)
    script = folder / "job.sh"
    if scheduler.has_arrays(site):
        return _submit_script(store, scheduler, plan, made, script)
    for index, point in enumerate(sweeps.points(store, run_id)):
        pattern = scheduler.log_pattern(str(scheduler_log(store, point)))
        try:
            with execute.interrupts_held(), store.guarded():
                store.run(point).mkdir(parents=True)
                job_id = give_to(scheduler, plan.job, script, pattern, store.mark(point))
                own = msgspec.structs.replace(made, run_id=point, points=0, job_id=job_id, submitter="")
                keep_job_id(store, scheduler, own)
        except (KeyboardInterrupt, Terminated, PlanError, ToolError, StoreError) as error:
            if index == 0 and isinstance(error, (PlanError, StoreError)):
                store.discard(folder)
                raise
            if isinstance(error, PlanError):
                store.discard(store.run(point))
            _end_submission(store, made)
            sweeps.cancel(store, run_id)
            if not isinstance(error, BareboatError):
                raise
            raise error.but(
                message=f"{error.message}; {index} of the {made.points} points were submitted "
                "and are now cancelled"
            ) from None
    mpi_checks.expect(store, plan, run_id + mpi_checks.FIRST_POINT)
    return _end_submission(store, made)


def _end_submission(store: Store, made: Submission) -> Submission:
    """Write that nobody submits the run any more. Without it, the end of this process shows that."""
    ended = msgspec.structs.replace(made, submitter="")
    with contextlib.suppress(StoreError):
        store.write(store.run(made.run_id) / "submission.json", codec.to_json(ended))
    return ended


def begin(store: Store, plan: Plan, site: Site, *, job_id: str | None = None) -> Submission:
    """A run's directory with its script, before the script is submitted or started."""
    run_id = store.new_run(plan.job.name)
    folder = store.run(run_id)
    submission = msgspec.structs.replace(_describe(plan, site, run_id), job_id=job_id)
    with store.whole_run(run_id):
        (folder / directory.CONTROL).mkdir()
        (folder / directory.RANKS).mkdir()
        if submission.supervisor:
            (folder / directory.METER).mkdir()
        else:  # the nodes must see it when the job starts
            (folder / directory.CONTROL / "logs").mkdir()
            write_sampler(store, folder / directory.CONTROL)
        _write(store, plan, site, submission, folder / directory.CONTROL)
    return submission


def make_sweep(store: Store, plan: Plan, site: Site) -> Submission:
    """Make a sweep's directory, with its script and table, before any point runs."""
    assert plan.job.sweep is not None
    run_id = store.new_run(plan.job.name)
    folder = store.run(run_id)
    with store.whole_run(run_id):
        made = msgspec.structs.replace(_describe(plan, site, run_id), points=len(plan.job.sweep.points))
        store.write(folder / "sweep.json", codec.to_json(plan.job.sweep))
        store.write(folder / "table", sweep.table(plan.job.sweep))
        if plan.scheduler != registry.HERE:
            write_sampler(store, folder)
        _write(store, plan, site, made, folder)
    return made


def _write(store: Store, plan: Plan, site: Site, made: Submission, scripts: Path) -> None:
    """Write what a run and a sweep have alike; their scripts into the directory `scripts`."""
    folder = store.run(made.run_id)
    # In the job in which Bareboat runs, what the script prints is shown.
    is_submitted = not made.supervisor and made.job_id is None
    place = render.Place(store.mark(made.run_id), str(folder), log=is_submitted)
    for name, text in render.scripts(plan, place):
        store.write(scripts / name, os.fsencode(text))
    if not made.supervisor:
        environment.write(store, scripts, plan.job.environment_from)
    shell = render.shell_script(plan)  # with which `attach` opens a shell in the job's container
    if shell is not None:
        store.write(scripts / SHELL, os.fsencode(shell))
    store.write(folder / "plan.json", codec.to_json(render.shown(plan)))
    provenance.keep(store, made.run_id, plan.job, site)
    store.write(folder / "submission.json", codec.to_json(made))


def _queue_of(plan: Plan) -> Scheduler:
    scheduler = registry.scheduler(plan.scheduler)
    if scheduler.IS_LOCAL:
        raise UsageError(
            f"{plan.scheduler} does not accept submissions", remedy="bareboat run, or --scheduler NAME"
        )
    return scheduler


def _describe(plan: Plan, site: Site, run_id: str) -> Submission:
    """The submission, before a scheduler has given it a job ID."""
    here = registry.scheduler(plan.scheduler).IS_LOCAL
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
        submitter="" if here else owner(),
    )


def _submit_script(
    store: Store, scheduler: Scheduler, plan: Plan, submission: Submission, script: Path
) -> Submission:
    """Submit, and store the submission with its job ID; a refused run leaves nothing."""
    run_id = submission.run_id
    # A stop in between would lose the ID of a queued job.
    with going_on(run_id), execute.interrupts_held():
        try:
            path = str(scheduler_log(store, run_id))
            pattern = scheduler.log_pattern(path, is_array=submission.points > 0)
            job_id = give_to(scheduler, plan.job, script, pattern)
        except PlanError:
            store.discard(store.run(run_id))
            raise
        except ToolError:
            _end_submission(store, submission)
            raise
        submission = msgspec.structs.replace(submission, job_id=job_id, submitter="")
        with store.whole_run(run_id):
            keep_job_id(store, scheduler, submission)
        try:
            mpi_checks.expect(store, plan, run_id + (mpi_checks.FIRST_POINT if submission.points else ""))
        except StoreError as error:  # the job runs anyway
            log.warning("the result of the MPI check will not be stored: %s", error.message)
    return submission


def give_to(scheduler: Scheduler, job: Job, script: Path, log: str, *arguments: str) -> str:
    """Submit the script with these arguments; return the job ID. `log`: for what the scheduler writes. Raises
    PlanError for a refusal."""
    argv = (*scheduler.submit(str(script), log), *arguments)
    stdin = script.read_text(errors="surrogateescape") if scheduler.SUBMITS_STDIN else None
    try:
        number = scheduler.job_id(submit_by(argv, stdin, job, folder=job.workdir))
        if not is_job_id(scheduler, number):
            raise ToolError(
                f"{argv[0]} returned {quoted(number, limit=200)}, which is not a {scheduler.NAME} job ID"
            )
    except ToolError as error:
        raise ToolError(
            f"{error.message}: the job may or may not have been submitted",
            context=error.context,
            remedy=f"{scheduler.LIST}   # if it lists {job_name(job)}, cancel that job or let it run "
            "before you submit again",
        ) from None
    return number


def submit_by(argv: Sequence[str], stdin: str | None, job: Job, *, folder: str | None = None) -> Outcome:
    """Run a submit command, which may take long, and may leave the job itself behind. It sees nothing of the
    allocation in which this process may run, and no value that the job reads from its own file."""
    variables = inherited.for_submission(os.environ, job.scheduling)
    return execute.run(
        argv, environment={n: v for n, v in variables.items() if n not in job.environment_from}, stdin=stdin,
        timeout_s=execute.patience(_SUBMISSION_S), folder=folder,
        watch=execute.Watch(notice_s=NOTICE_S, may_leave=True),
    )  # fmt: skip


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


def write_sampler(store: Store, folder: Path) -> None:
    """Write the sampler where the nodes of a job find it."""
    store.write(folder / execute.SAMPLER.name, execute.SAMPLER.read_bytes())
