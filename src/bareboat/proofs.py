"""Proofs of MPI, kept: what the ranks of earlier runs said of each step of the ladder.

A run that holds a proof is expected to tell of it: `proofs/pending/RUN` has its claim. At the next plan what
those runs have said by then is gathered into `proofs/HEX.json`. Each point of a sweep holds a proof of its
own: `proofs/pending/SWEEP` has the numbers of those that are still to speak.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from bareboat import codec, run_folder
from bareboat.clock import utc_now
from bareboat.errors import BareboatError
from bareboat.files import untrusted
from bareboat.model import Claim, Plan
from bareboat.mpi import proven
from bareboat.mpi.proven import Proven
from bareboat.store import Store

#: The job script's, for a job that could not start.
_NOT_STARTED = 3
_MOST_BYTES = 2**20


class _Awaited(Struct, frozen=True, kw_only=True):
    """What a run is to prove: claims in the order in which its script tries them. Of a sweep, which of its
    points."""

    claims: tuple[Claim, ...]
    world_size: int
    image_digest: str | None
    engine: str
    points: tuple[int, ...] = ()


def expect(store: Store, plan: Plan, run_id: str, *, points: int = 0) -> None:
    """The run will prove what its plan claims; of a sweep each of its first points, so many."""
    if plan.proves is not None:
        awaited = _Awaited(
            claims=tuple(each.proves for each in (plan, *plan.otherwise) if each.proves is not None),
            world_size=plan.job.topology.world_size,
            image_digest=plan.image_digest,
            engine=plan.engine,
            points=tuple(range(points)),
        )
        store.write(_pending(store) / run_id, codec.to_json(awaited))


def gather(store: Store) -> tuple[Proven, ...]:
    """Everything that proofs have said here, the newest first."""
    folder = _pending(store)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            _take_in(store, path)
        except BareboatError:  # damaged, or of another version
            _discard(path)
    return kept(store)


def kept(store: Store) -> tuple[Proven, ...]:
    found = []
    for path in store.proofs().glob("*.json") if store.proofs().is_dir() else ():
        try:
            found.append(store.read(path, Proven))
        except BareboatError:
            _discard(path)
    return tuple(sorted(found, key=lambda each: each.at, reverse=True))


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def forget(store: Store) -> int:
    """Forget them all; how many there were. What runs have yet to say is heard."""
    found = len(gather(store))
    for path in store.proofs().glob("*.json"):
        path.unlink(missing_ok=True)
    return found


def _take_in(store: Store, path: Path) -> None:
    run_id = path.name
    awaited = store.read(path, _Awaited)
    if not awaited.points:
        found, is_over = _heard(store, awaited, run_id)
        silent: tuple[int, ...] = ()
    else:
        found, silent = _heard_of_points(store, awaited, run_id)
        is_over = not silent
    for each in found:
        name = codec.digest(each.claim).removeprefix("sha256:")
        store.write(store.proofs() / f"{name}.json", codec.to_json(each))
    if is_over:
        path.unlink(missing_ok=True)
    elif silent != awaited.points:
        store.write(path, codec.to_json(msgspec.structs.replace(awaited, points=silent)))


def _heard_of_points(store: Store, awaited: _Awaited, sweep: str) -> tuple[list[Proven], tuple[int, ...]]:
    """What the points said, the newest last, and those that are still to speak. All make the same claims."""
    if not store.run(sweep).is_dir():
        return [], ()
    folder = store.run(f"{sweep}.0").parent
    # One look for all: of a thousand points most may be waiting, and have no folder yet.
    begun = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
    found: list[Proven] = []
    silent = []
    for number in awaited.points:
        said, is_over = _heard(store, awaited, f"{sweep}.{number}") if str(number) in begun else ([], False)
        found += said
        if not is_over:
            silent.append(number)
    return sorted(found, key=lambda each: each.at), tuple(silent)


def _heard(store: Store, awaited: _Awaited, run_id: str) -> tuple[list[Proven], bool]:
    """What a run has said, and whether there is nothing more to wait for."""
    folder = store.run(run_id)
    control = run_folder.control(folder)
    code = _exit_code(folder)
    found: list[Proven] = []
    is_over = code is not None or not folder.is_dir()
    for rung, claim in enumerate(awaited.claims, 1):
        # Kept under its number when the check failed and the next way was tried.
        read = _log((control / f"proof.{rung}.log",))
        failed = read is not None
        if read is None:  # the script runs the proof, or the image's own mpirun does, in the container
            read = _log((control / "proof.log", folder / run_folder.RANKS / "proof.log"))
        log, at = read or ("", utc_now())
        said = proven.verdict(log, asked=awaited.world_size, failed=failed or code == _NOT_STARTED)
        if said is not None:
            found.append(
                Proven(
                    claim=claim, holds=said.holds, said=said.said, at=at, run_id=run_id,
                    image_digest=awaited.image_digest, engine=awaited.engine, of_site=said.of_site,
                )
            )  # fmt: skip
        if not failed:
            return found, is_over or said is not None
    return found, is_over


def _log(paths: tuple[Path, ...]) -> tuple[str, str] | None:
    """The first of these that is there, and when it was written."""
    for path in paths:
        try:
            log = untrusted.read_head(path, limit=_MOST_BYTES).decode(errors="replace")
            return log, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.lstat(path).st_mtime))
        except OSError:
            continue
    return None


def _exit_code(folder: Path) -> int | None:
    """Of a run that is over: what its script left, what the scheduler said, or its record."""
    for path in (run_folder.control(folder) / "exit_code", folder / "exit_code"):
        try:
            found = run_folder.ended(path)
        except run_folder.DamagedRunError:
            continue
        if found is not None:
            return found[0]
    return None


def _pending(store: Store) -> Path:
    return store.proofs() / "pending"
