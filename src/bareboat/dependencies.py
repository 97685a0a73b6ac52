"""The jobs that a job depends on (`scheduling.after`): names of runs and numbers of jobs, as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from bareboat import submission, sweeps
from bareboat.errors import StoreError, UsageError
from bareboat.store import Store


def job_ids(store: Store, scheduler: str, after: Sequence[str]) -> tuple[str, ...]:
    """The numbers of the jobs. Raises UsageError for a run of another scheduler, and for what is neither a
    run nor a job that the scheduler knows."""
    runs = set(store.runs())
    found: list[str] = []
    numbers: list[str] = []
    for each in after:
        if each.partition(".")[0] in runs and (named := _of_run(store, scheduler, each, runs)):
            found += named
        else:
            numbers.append(each)
            found.append(each)
    known = submission.ask(scheduler, numbers)
    for each in numbers:
        if each not in known:
            raise UsageError(
                f'scheduling.after names "{each}", which is no run of this store and no job that {scheduler} '
                "knows",
                remedy="bareboat status --all  # the names of runs; leave out a job that ended well",
            )
    return tuple(dict.fromkeys(found))


def _of_run(store: Store, scheduler: str, run_id: str, runs: set[str]) -> list[str]:
    """The job of a run, the array job of a sweep, or the jobs of its points; nothing for what is no run."""
    try:
        own = submission.read(store, run_id)
    except StoreError:
        if run_id not in runs:
            return []  # a job's number that looks like a point
        raise
    if own.scheduler != scheduler:
        raise UsageError(
            f"scheduling.after names {run_id}, which was submitted to {own.scheduler}, not to {scheduler}",
            remedy="take it out, or submit both to the same scheduler",
        )
    if own.job_id is not None:
        return [own.job_id]
    points = [submission.read(store, name) for name in sweeps.points(store, run_id) if name != run_id]
    ids = [point.job_id for point in points if point.job_id is not None]
    if not ids or len(ids) < len(points):
        raise UsageError(
            f"scheduling.after names {run_id}, and {scheduler} returned no job number for it",
            remedy=f"bareboat status {run_id}",
        )
    return ids
