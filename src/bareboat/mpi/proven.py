"""What the proofs of earlier runs said on this site. A step of the ladder whose proof failed is not taken
again for the same image under the same circumstances. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from bareboat.model import Claim
from bareboat.mpi import proving
from bareboat.printable import one_line


class Proven(Struct, frozen=True, kw_only=True):
    """What one proof said: of which claim, when (UTC), and by which run. `of_site`: it started no rank,
    which is no fault of the image."""

    claim: Claim
    holds: bool
    said: str
    at: str
    run_id: str
    image_digest: str | None = None
    engine: str = ""
    of_site: bool = False

    @property
    def day(self) -> str:
        return self.at[:10]


class Verdict(Struct, frozen=True):
    """What the words of a proof come to."""

    holds: bool
    said: str
    of_site: bool = False


#: What a launcher says that cannot load its own parts. That it cannot have the nodes or CPUs is of the job.
_OF_LAUNCHER = re.compile(
    r"invalid mpi type|\bmpi/\w+: |cannot create (?:mpi )?context|error while loading shared libraries"
    r"|(?:mpirun|mpiexec\S*|srun): (?:command not found|No such file|Permission denied)",
    re.IGNORECASE,
)
#: What an MPI or its launcher says of itself when it breaks before a rank can speak.
_OF_MPI = re.compile(
    r"MPI_(?:Init|ABORT)|\bPMI(?:x|2|_|X)|UNMANAGED_SINGLETON|built with SLURM's PMI|PML add procs"
)
#: faulthandler's, when the proof's own patience ends.
_HUNG = re.compile(r"^.*Timeout \(\d+:\d\d:\d\d", re.MULTILINE)


def verdict(log: str, *, asked: int, failed: bool) -> Verdict | None:
    """What a proof's log says. `failed`: the job script ended because of it. None when nothing is said of
    MPI: the job was cancelled, a node was lost, a container did not start."""
    found = proving.read(log, exit_code=0, asked=asked)
    if found.holds:
        return Verdict(True, found.sentence)
    if not failed:
        return None
    if found.errors or (found.sizes and set(found.sizes) != {asked}):
        return Verdict(False, found.sentence)
    if _HUNG.search(log):
        return Verdict(False, "the ranks hung")
    if proving.STARTED not in log and (told := _first(_OF_LAUNCHER, log)) is not None:
        return Verdict(False, one_line(told), of_site=True)
    told = _first(_OF_MPI, log)
    return Verdict(False, f"MPI did not start: {told[:200]}") if told is not None else None


def _first(pattern: re.Pattern[str], log: str) -> str | None:
    return next((line.strip() for line in log.splitlines() if pattern.search(line)), None)


def refuted(proofs: Iterable[Proven], context: str) -> dict[str, str]:
    """Step -> what its proof said, under these circumstances."""
    return {
        each.claim.step: _quoted(each)
        for each in proofs
        if each.claim.context == context and not each.holds and not (each.of_site and each.claim.launch)
    }


def broken(proofs: Iterable[Proven], site: str) -> dict[str, str]:
    """Why a process manager, by its title, starts no rank on this site, if its newest proof says so."""
    newest: dict[str, Proven] = {}
    for each in sorted(proofs, key=lambda each: each.at, reverse=True):
        if each.claim.launch and each.claim.site == site:
            newest.setdefault(each.claim.launch, each)
    return {launch: _quoted(each) for launch, each in newest.items() if each.of_site}


def held(proofs: Iterable[Proven], claim: Claim) -> Proven | None:
    return next((each for each in proofs if each.claim == claim and each.holds), None)


def _quoted(proof: Proven) -> str:
    return f"{proof.said} ({proof.day}, run {proof.run_id})"
