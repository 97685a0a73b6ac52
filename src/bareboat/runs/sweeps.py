"""Runs of sweeps: monitored point by point, reported as one.

A sweep is a run whose points are runs of their own, named SWEEP.NUMBER, in directories below its own:

    sweep.json    names and values of the points          table          the same for the job script
    job.sh        one script for all points                submission.json   the array job
    points/N/     a run's directory: control/, ranks/, output.log, record.json …
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bareboat import registry
from bareboat.model import JobState, Record
from bareboat.model.sweep import Sweep
from bareboat.runs import (
    directory,
    environment,
    interaction,
    queries,
    records,
    state,
    submission,
    supervisor,
)
from bareboat.runs.state import Status
from bareboat.schedulers.tool_output import output_tail
from bareboat_base.errors import StoreError, ToolError
from bareboat_images.store import Store


def find(store: Store, run_id: str) -> Sweep | None:
    """The points of a sweep; None for other runs."""
    path = store.run(run_id) / "sweep.json"
    return _read(store, path) if os.path.lexists(path) else None


@functools.lru_cache(maxsize=4)
def _read(store: Store, path: Path) -> Sweep:
    """Read once for all points, since the file never changes."""
    return store.read(path, Sweep)


def of_point(store: Store, run_id: str) -> tuple[Sweep, int] | None:
    """The sweep of a point and the point's number; None for other runs."""
    name, _, number = run_id.rpartition(".")
    found = find(store, name) if name and number.isdecimal() else None
    return None if found is None else (found, int(number))


def points(store: Store, run_id: str) -> list[str]:
    """The runs of a name: a sweep's points, or the run itself."""
    found = find(store, run_id)
    return [run_id] if found is None else list(_names(run_id, len(found.points)))


def _names(run_id: str, count: int) -> Iterator[str]:
    return (f"{run_id}.{index}" for index in range(count))


def look(store: Store, run_ids: Sequence[str], *, must_answer: bool = True) -> list[Status]:
    """Like `state.look`, with one status for all points of a sweep."""
    wanted: dict[str, list[str]] = {}
    damaged: dict[str, Status] = {}
    for run_id in run_ids:
        try:
            wanted[run_id] = points(store, run_id)
            if wanted[run_id] != [run_id]:
                _check_points(store, run_id, len(wanted[run_id]))
        except StoreError as error:
            if must_answer:
                raise
            wanted[run_id] = []
            damaged[run_id] = state.unreadable(run_id, error)
    each = list(dict.fromkeys(point for names in wanted.values() for point in names))
    found = dict(zip(each, state.look(store, each, must_answer=must_answer), strict=True))
    for run_id, names in wanted.items():
        if names and names != [run_id] and all(found[name].over for name in names):
            environment.remove(store, store.run(run_id))
    return [
        damaged[run_id]
        if run_id in damaged
        else found[run_id]
        if names == [run_id]
        else summary(store, run_id, [found[name] for name in names])
        for run_id, names in wanted.items()
    ]


def _check_points(store: Store, run_id: str, count: int) -> None:
    """Raise StoreError where the submission and the sweep disagree: points would be missing."""
    made = submission.read(store, run_id)
    if made.points != count:
        path = store.run(run_id) / "sweep.json"
        raise directory.damaged(path, OSError(0, f"it has {count} points, the submission {made.points}"))


def summary(store: Store, run_id: str, found: Sequence[Status]) -> Status:
    """Summarise a sweep. Its exit code is that of its first failed point, else 0."""
    made = submission.read(store, run_id)
    failed = [status for status in found if status.shell_code not in (None, 0)]
    open_states = {status.state for status in found if not status.over}
    # On this machine: points that were never started, or that ended with Bareboat.
    ends = {status.state for status in found if status.over and status.exit_code is None}
    if not open_states:
        shared = failed[0].state if failed else next(iter(ends), JobState.COMPLETED)
    elif JobState.RUNNING in open_states:
        shared = JobState.RUNNING
    else:
        shared = JobState.PENDING if JobState.PENDING in open_states else JobState.UNKNOWN
    counts = [(f"{sum(status.over for status in found)} of {len(found)} done", True)]
    for text, wanted in (
        ("cancelled", JobState.CANCELLED),
        ("running", JobState.RUNNING),
        ("waiting", JobState.PENDING),
        ("unknown", JobState.UNKNOWN),
        ("lost", JobState.LOST),
    ):
        number = sum(status.state is wanted for status in found)
        counts.append((f"{number} {text}", number > 0))
    others = sum(status.state is not JobState.CANCELLED for status in failed)
    counts.insert(1, (f"{others} failed", others > 0))
    began = [start for status in found for start in status.starts[:1]]
    # The others may still start.
    waits = [status for status in found if not status.over]
    never = waits[0] if waits and all(status.stuck for status in waits) else None
    if never is not None:
        counts.append((f"{never.submission.run_id}: {never.reason}", True))
    return Status(
        submission=made,
        state=shared,
        exit_code=failed[0].exit_code if failed and not open_states else None if open_states or ends else 0,
        ended_at_epoch_s=None if open_states else max(status.ended_at_epoch_s or 0 for status in found),
        starts=tuple(sorted(began, key=lambda start: start.at_epoch_s)),
        reason=", ".join(text for text, is_told in counts if is_told),
        points=tuple(found),
        job_id=made.job_id,
        stuck="" if never is None else never.stuck,
    )


def wait(store: Store, run_id: str, *, each: Callable[[Status], None], poll_s: float = 2.0) -> Status:
    """Like `interaction.wait`, until the last point ended."""
    return interaction.wait(store, run_id, each=each, poll_s=poll_s, look=look)


def records_of(store: Store, status: Status) -> list[Record]:
    """The records of a run, or of a sweep's points, that ended."""
    made = [records.record(store, each) for each in (status.points or (status,))]
    return [record for record in made if record is not None]


def cancel(store: Store, run_id: str) -> None:
    """Cancel a run, or all points of a sweep: in one command, except for points that were resubmitted under
    IDs of their own."""
    found = find(store, run_id)
    made = submission.read(store, run_id)
    if found is None:
        interaction.cancel(store, run_id)
        return
    if made.supervisor:
        store.write(store.run(run_id) / "cancelled", b"")
        (status,) = look(store, [run_id])
        for each in status.points:
            if each.state is JobState.RUNNING:
                interaction.cancel(store, each.submission.run_id)
        return
    if made.job_id is None:
        supervisor.check_submitted(made)
        names = points(store, run_id)
        own = [name for name in names if submission.is_submitted(store, name)]
        # Without any, the array's job ID is unknown: the first point reports that.
        for name in own or [f"{run_id}.0"]:
            interaction.cancel(store, name)
        for name in names if own else ():
            if not store.run(name).exists():  # nobody has begun to submit it
                store.write(store.run(name) / "cancelled", b"")
        environment.remove(store, store.run(run_id))
        return
    queries.check_cluster(made)
    scheduler = registry.scheduler(made.scheduler)
    (status,) = look(store, [run_id])
    left = [point.submission for point in status.points if not point.over]
    for point in left:
        store.write(store.run(point.run_id) / "cancelled", b"")
    outcome = submission.cancel_by(scheduler.cancel(made.job_id))
    moved = [point for point in left if submission.job_id_now(store, point) != point.job_id]
    for point in moved:
        interaction.cancel(store, point.run_id)
    if not outcome.ok:
        (status,) = look(store, [run_id])
        still = [each.submission.run_id for each in status.points if not each.over]
        for name in still:
            (store.run(name) / "cancelled").unlink(missing_ok=True)
        if still:
            raise ToolError(
                f"{outcome.argv[0]} did not cancel job {made.job_id}", context=output_tail(outcome)
            )
    environment.remove(store, store.run(run_id))


def logs(store: Store, run_id: str) -> list[tuple[str, Path]]:
    """The output of each point that printed something, or of which the scheduler wrote something."""
    found = [(name, submission.output_log(store, name)) for name in points(store, run_id)]
    return [
        (name, path)
        for name, path in found
        if os.path.lexists(path) or submission.scheduler_logs(store, submission.read(store, name))
    ]
