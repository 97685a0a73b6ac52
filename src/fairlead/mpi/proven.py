"""What the proofs of earlier runs said on this site. A step of the ladder whose proof failed is not taken
again for the same image under the same circumstances. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from fairlead.model import Claim
from fairlead.mpi import proving


class Proven(Struct, frozen=True, kw_only=True):
    """What one proof said: of which claim, when (UTC), and by which run."""

    claim: Claim
    holds: bool
    said: str
    at: str
    run_id: str
    image_digest: str | None = None
    engine: str = ""

    @property
    def day(self) -> str:
        return self.at[:10]


class Verdict(Struct, frozen=True):
    """What the words of a proof come to."""

    holds: bool
    said: str


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
    told = next((line.strip() for line in log.splitlines() if _OF_MPI.search(line)), None)
    return Verdict(False, f"MPI did not start: {told[:200]}") if told is not None else None


def refuted(proofs: Iterable[Proven], context: str) -> dict[str, str]:
    """Step -> what its proof said, under these circumstances."""
    return {
        each.claim.step: f"{each.said} ({each.day}, run {each.run_id})"
        for each in proofs
        if each.claim.context == context and not each.holds
    }


def held(proofs: Iterable[Proven], claim: Claim) -> Proven | None:
    return next((each for each in proofs if each.claim == claim and each.holds), None)
