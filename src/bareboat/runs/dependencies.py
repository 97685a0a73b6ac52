"""Job dependencies (`scheduling.after`): run names and job IDs, resolved to job IDs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bareboat import registry
from bareboat.runs import queries, state, submission, supervisor, sweeps
from bareboat_base.errors import StoreError, UsageError
from bareboat_images.store import Store


def job_ids(
    store: Store, scheduler: str, after: Sequence[str], *, note: Callable[[str], object] = str
) -> tuple[str, ...]:
    """The IDs of the jobs that have not ended. `note` gets the newest run of a job that is named. Raises
    UsageError for a run of another scheduler, for one that failed, and for a name that is no run, no job that
    the scheduler knows and no job's name."""
    runs = set(store.runs())
    found: list[str] = []
    others = [each for each in after if not _is_run(store, scheduler, each, runs)]
    known = state.ask(scheduler, others)
    for each in after:
        run_id = each
        if each in others:
            if each in known:
                found.append(each)
                continue
            run_id = submission.find(store, each, lambda run: submission.is_submitted(store, run))
            if run_id == each:
                unknown = f'"{each}" is neither a run in this store nor a job known to {scheduler}'
                raise UsageError(
                    f"scheduling.after: {unknown}",
                    remedy="bareboat status --all   # lists runs; remove jobs that completed from `after`",
                )
            note(f"after {run_id} (the newest of {each})")
        jobs = _of_run(store, scheduler, run_id, runs)
        found += jobs if _is_open(store, scheduler, run_id, note) else ()
    return tuple(dict.fromkeys(found))


def _is_run(store: Store, scheduler: str, name: str, runs: set[str]) -> bool:
    """Whether this is a run or a point of one. A dot is also part of a job's name, and of some job IDs; a
    point's number follows the last one."""
    return bool(runs & {name, name.rpartition(".")[0]} and _of_run(store, scheduler, name, runs))


def _of_run(store: Store, scheduler: str, run_id: str, runs: set[str]) -> list[str]:
    """The present job of a run, or the jobs of a sweep; empty for other names."""
    try:
        own = submission.read(store, run_id)
    except StoreError:
        if run_id not in runs:
            return []  # a job ID that looks like a point
        raise
    if own.scheduler != scheduler:
        raise UsageError(
            f"scheduling.after: {run_id} was submitted to {own.scheduler}, not to {scheduler}",
            remedy="remove it, or submit both to the same scheduler",
        )
    queries.check_cluster(own)
    jobs = [submission.read(store, f"{run_id}.{index}") for index in range(own.points)] or [own]
    now = [submission.job_id_now(store, job) for job in jobs]
    if own.points and own.job_id is not None:  # one array job, without the elements that went on as new jobs
        now = [own.job_id, *(number for job, number in zip(jobs, now, strict=True) if number != job.job_id)]
    ids = [number for number in now if number is not None]
    if len(ids) == len(now):
        return ids
    if supervisor.is_submitting(own):
        raise UsageError(
            f"scheduling.after: {run_id} is being submitted: {scheduler} has not returned a job ID yet",
            remedy=f"the same command when it has one: bareboat status {run_id}",
        )
    raise UsageError(
        f"scheduling.after: {scheduler} returned no job ID for {run_id}",
        remedy=f"bareboat status {run_id}",
    )


def _is_open(store: Store, scheduler: str, run_id: str, note: Callable[[str], object]) -> bool:
    """Whether the run has not ended. Raises UsageError for one after which no job starts: it failed, or never
    starts itself."""
    (status,) = sweeps.look(store, [run_id], must_answer=False)
    waits = not registry.scheduler(scheduler).AFTER_FAILURE
    if status.over and status.shell_code != 0 and waits:
        raise UsageError(
            f"scheduling.after: {run_id} is {status.state.value}, so the job would never start",
            remedy=f"run that job again, and name the new run; why it ended: bareboat status {run_id}",
        )
    if status.stuck:
        raise UsageError(
            f"scheduling.after: {run_id} never starts, and neither would the job: {status.reason}",
            remedy=status.stuck_remedy,
        )
    if status.over and status.shell_code != 0:
        note(f"{run_id} is {status.state.value}; the job does not wait for it")
    return not status.over
