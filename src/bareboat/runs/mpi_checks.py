"""Stored MPI check results: what the ranks of earlier runs reported about each step of the ladder.

A run that holds a check is expected to report: `mpi-checks/pending/RUN` has its subject. The next plan
gathers the reports into `mpi-checks/HEX.json`. All points of a sweep hold the check, and the first reports.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

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
#: What follows the sweep in the name of its first point.
FIRST_POINT = ".0"
_MOST_BYTES = 2**20


class _Awaited(Struct, frozen=True, kw_only=True):
    """The subjects that a run will check, in the order in which its script tries them."""

    subjects: tuple[CheckSubject, ...]
    world_size: int
    image_digest: str | None
    engine: str


def expect(store: Store, plan: Plan, run_id: str) -> None:
    """Expect a run, or a sweep's first point, to check its plan's subjects."""
    if plan.check_subject is not None:
        awaited = _Awaited(
            subjects=tuple(
                each.check_subject for each in (plan, *plan.otherwise) if each.check_subject is not None
            ),
            world_size=plan.job.topology.world_size,
            image_digest=plan.image_digest,
            engine=plan.engine,
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
    found, is_over = _heard(store, awaited, path.name)
    for each in found:
        name = codec.digest(each.subject).removeprefix("sha256:")
        store.write(store.mpi_checks() / f"{name}.json", codec.to_json(each))
    if is_over:
        path.unlink(missing_ok=True)


def _heard(store: Store, awaited: _Awaited, run_id: str) -> tuple[list[CheckResult], bool]:
    """A run's reports, and whether they are complete."""
    folder = store.run(run_id)
    control = directory.control(folder)
    code = None
    with contextlib.suppress(directory.DamagedRunError):
        code = (directory.exit_of(folder) or (None,))[0]
    found: list[CheckResult] = []
    # A point that waits has no directory yet.
    is_over = code is not None or not store.run(run_id.removesuffix(FIRST_POINT)).is_dir()
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


def _pending(store: Store) -> Path:
    return store.mpi_checks() / "pending"
