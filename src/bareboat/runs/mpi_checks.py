"""Stored MPI check results: what the ranks of earlier runs reported about each step of the ladder.

A run that holds a check is expected to report: `mpi-checks/pending/RUN` has its subject. The next plan
gathers the reports into `mpi-checks/HEX.json`. Each point of a sweep holds a check of its own:
`mpi-checks/pending/SWEEP` has the numbers of the points that have not reported yet.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from bareboat.model import CheckSubject, Plan
from bareboat.mpi import checks
from bareboat.mpi.checks import CheckResult
from bareboat.runs import directory
from bareboat_base import codec
from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError
from bareboat_base.files import untrusted
from bareboat_images.store import Store

#: The job script's, for a job that could not start.
_NOT_STARTED = 3
_MOST_BYTES = 2**20


class _Awaited(Struct, frozen=True, kw_only=True):
    """The subjects that a run will check, in the order in which its script tries them; for a sweep, of which
    points."""

    subjects: tuple[CheckSubject, ...]
    world_size: int
    image_digest: str | None
    engine: str
    points: tuple[int, ...] = ()


def expect(store: Store, plan: Plan, run_id: str, *, points: int = 0) -> None:
    """Expect a run to check its plan's subjects; for a sweep, each of its first `points` points."""
    if plan.check_subject is not None:
        awaited = _Awaited(
            subjects=tuple(
                each.check_subject for each in (plan, *plan.otherwise) if each.check_subject is not None
            ),
            world_size=plan.job.topology.world_size,
            image_digest=plan.image_digest,
            engine=plan.engine,
            points=tuple(range(points)),
        )
        store.write(_pending(store) / run_id, codec.to_json(awaited))


def gather(store: Store) -> tuple[CheckResult, ...]:
    """All MPI check results of this site, newest first."""
    folder = _pending(store)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            awaited = store.read(path, _Awaited)
        except BareboatError:
            _discard(path)
            continue
        with contextlib.suppress(BareboatError):  # on a full disk they wait
            _take_in(store, path, awaited)
    return kept(store)


def kept(store: Store) -> tuple[CheckResult, ...]:
    found = []
    for path in store.mpi_checks().glob("*.json") if store.mpi_checks().is_dir() else ():
        try:
            found.append(store.read(path, CheckResult))
        except BareboatError:
            _discard(path)
    return tuple(sorted(found, key=lambda each: each.at, reverse=True))


def _discard(path: Path) -> None:
    """Remove a file that is damaged or of another version; one that cannot be read now stays."""
    with contextlib.suppress(OSError):
        untrusted.read_bytes(path, limit=_MOST_BYTES)
        path.unlink()


def forget(store: Store) -> int:
    """Discard all results; return their number. Pending reports are still gathered."""
    found = len(gather(store))
    for path in store.mpi_checks().glob("*.json"):
        path.unlink(missing_ok=True)
    return found


def _take_in(store: Store, path: Path, awaited: _Awaited) -> None:
    run_id = path.name
    if not awaited.points:
        found, is_over = _heard(store, awaited, run_id)
        silent: tuple[int, ...] = ()
    else:
        found, silent = _heard_of_points(store, awaited, run_id)
        is_over = not silent
    for each in found:
        name = codec.digest(each.subject).removeprefix("sha256:")
        store.write(store.mpi_checks() / f"{name}.json", codec.to_json(each))
    if is_over:
        path.unlink(missing_ok=True)
    elif silent != awaited.points:
        store.write(path, codec.to_json(msgspec.structs.replace(awaited, points=silent)))


def _heard_of_points(
    store: Store, awaited: _Awaited, sweep: str
) -> tuple[list[CheckResult], tuple[int, ...]]:
    """The points' reports, newest last, and the points still pending. All have the same subjects."""
    if not store.run(sweep).is_dir():
        return [], ()
    folder = store.run(f"{sweep}.0").parent
    # One listing for all: of a thousand points most may be pending, without a directory yet.
    begun = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
    found: list[CheckResult] = []
    silent = []
    for number in awaited.points:
        said, is_over = _heard(store, awaited, f"{sweep}.{number}") if str(number) in begun else ([], False)
        found += said
        if not is_over:
            silent.append(number)
    return sorted(found, key=lambda each: each.at), tuple(silent)


def _heard(store: Store, awaited: _Awaited, run_id: str) -> tuple[list[CheckResult], bool]:
    """A run's reports, and whether they are complete."""
    folder = store.run(run_id)
    control = directory.control(folder)
    code = _exit_code(folder)
    found: list[CheckResult] = []
    is_over = code is not None or not folder.is_dir()
    for rung, subject in enumerate(awaited.subjects, 1):
        # Stored under its number when the check failed and the next way was tried.
        read = _log((control / f"mpi_check.{rung}.log",))
        failed = read is not None
        if read is None:  # the check is run by the script, or in the container by the image's own mpirun
            read = _log((control / "mpi_check.log", folder / directory.RANKS / "mpi_check.log"))
        log, at = read or ("", utc_now())
        said = checks.verdict(log, asked=awaited.world_size, failed=failed or code == _NOT_STARTED)
        if said is not None:
            found.append(
                CheckResult(
                    subject=subject, holds=said.holds, said=said.said, at=at, run_id=run_id,
                    image_digest=awaited.image_digest, engine=awaited.engine, of_site=said.of_site,
                )
            )  # fmt: skip
        if not failed:
            return found, is_over or said is not None
    return found, is_over


def _log(paths: tuple[Path, ...]) -> tuple[str, str] | None:
    """The first of these files that exists, and when it was written."""
    for path in paths:
        try:
            log = untrusted.read_head(path, limit=_MOST_BYTES).decode(errors="replace")
            return log, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.lstat(path).st_mtime))
        except OSError:
            continue
    return None


def _exit_code(folder: Path) -> int | None:
    """The exit code of a run that ended; None also for a damaged one."""
    with contextlib.suppress(directory.DamagedRunError):
        if (end := directory.exit_of(folder)) is not None:
            return end[0]
    return None


def _pending(store: Store) -> Path:
    return store.mpi_checks() / "pending"
