"""Removal of runs that ended: their directories, with scripts, output and records."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from msgspec import Struct

from bareboat.model import JobState
from bareboat.runs import environment, sweeps
from bareboat_base.errors import BareboatError, StoreError, UsageError
from bareboat_base.files import ownership
from bareboat_images.store import Store
from bareboat_images.upkeep import Amount

#: A run without any of these was stopped before it started.
_STARTED = ("submission.json", "matrix.json")
#: The age below which such a run may still be about to start.
_YOUNG_S = 3600.0


class RemovedRun(Struct, frozen=True, kw_only=True):
    run_id: str
    amount: Amount


def remove(
    store: Store, run_ids: Sequence[str], *, force: bool = False, dry_run: bool = False
) -> list[RemovedRun]:
    """Remove these runs: all or none. Raises BareboatError for one that has not ended, and StoreError for one
    that this user may not remove. `force`: also runs of which nobody knows whether they ended."""
    names = list(dict.fromkeys(run_ids))
    for name in names:
        _check(store, name, force=force)
    found = []
    for name in names:
        found.append(RemovedRun(run_id=name, amount=Amount.below(store.run(name))))
        if not dry_run:
            store.discard(store.run(name))
    return found


def older_than(store: Store, days: float) -> list[str]:
    """The runs that ended and whose directory nobody has changed for so many days."""
    oldest = time.time() - days * 86_400
    found = []
    for name in store.runs():
        if newest_change(store, name) < oldest:
            try:
                _check(store, name, force=False)
            except BareboatError:
                continue
            found.append(name)
    return found


def remove_values(store: Store) -> None:
    """Remove the values of `environment_from` that jobs left behind which ended without their script, or
    never started."""
    for left in environment.left_behind(store):
        with contextlib.suppress(BareboatError):  # a damaged run
            sweeps.look(store, left, must_answer=False)  # removes those of jobs that are over


def newest_change(store: Store, name: str) -> float:
    """Seconds since 1970 of the last change in a run's own directory."""
    folder = store.run(name)
    times = [folder.lstat().st_mtime]
    with os.scandir(folder) as entries:
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    return max(times)


def _check(store: Store, name: str, *, force: bool) -> None:
    folder = store.run(name)
    if folder.parent.name == "points":
        whole = name.rpartition(".")[0]
        raise UsageError(f"{name} is a point of {whole}", remedy=f"bareboat rm {whole}")
    if not os.path.lexists(folder):
        raise store.missing_run(name)
    if (obstacle := ownership.obstacle(folder)) is not None:
        raise StoreError(
            f"this user may not remove {name}; nothing was removed",
            context=obstacle,
            remedy="ask its owner to remove it",
        )
    if any(os.path.lexists(folder / study) for study in _STARTED[1:]):
        with store.locked(name):  # raises StoreError while it is measured
            _check_jobs(store, name, force=force)
            return
    if not any(os.path.lexists(folder / each) for each in _STARTED):
        if not force and time.time() - newest_change(store, name) < _YOUNG_S:
            raise BareboatError(
                f"{name} may be about to start; nothing was removed", remedy=f"bareboat rm --force {name}"
            )
        return
    _check_over(store, name, force=force)


def _check_jobs(store: Store, name: str, *, force: bool) -> None:
    """Raise BareboatError for a study of which a scheduler's job waits or runs."""
    points = store.run(name) / "points"
    for point in sorted(os.listdir(points)) if points.is_dir() else ():
        if point.isdecimal() and os.path.lexists(points / point / "submission.json"):
            _check_over(store, f"{name}.{point}", force=force)


def _check_over(store: Store, name: str, *, force: bool) -> None:
    (status,) = sweeps.look(store, [name], must_answer=False)
    if status.over or (force and status.state is JobState.UNKNOWN):
        return
    if status.state is JobState.UNKNOWN:
        raise BareboatError(
            f"it is unknown whether {name} ended; nothing was removed",
            context=status.reason,
            remedy=f"bareboat rm --force {name}   # if it no longer runs",
        )
    raise BareboatError(
        f"{name} is {status.state.value}; nothing was removed", remedy=f"bareboat cancel {name}"
    )
