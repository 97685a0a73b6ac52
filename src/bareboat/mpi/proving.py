"""How the proof of the world's size is called, and what its answers say. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bareboat.mpi import proof, text
from bareboat.printable import one_line

_PROGRAM = text.program(proof)
#: What the job script prints for each rank of the check: whoever starts the ranks has started this one.
STARTED = "bareboat-rank"
#: Of an error: what a dynamic linker says of a library, and the remedy.
_MOST_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the started ranks said. `sizes` and `ranks` in the order in which they spoke."""

    asked: int
    exit_code: int
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    library: str | None
    errors: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return (
            self.exit_code == 0
            and set(self.sizes) == {self.asked}
            and sorted(self.ranks) == list(range(self.asked))
        )

    @property
    def singletons(self) -> bool:
        """The silent failure: N worlds of size 1."""
        return self.asked > 1 and bool(self.sizes) and set(self.sizes) == {1}

    @property
    def sentence(self) -> str:
        """What was found, for a message."""
        where = f" on {len(set(self.hosts))} nodes" if len(set(self.hosts)) > 1 else ""
        library = self.library or "the image's MPI"
        if self.holds:
            return f"{self.asked} ranks{where} were one world of {library}"
        if self.singletons:
            return (
                f"{len(self.sizes)} of {self.asked} ranks were singletons: "
                f"the launcher has no PMI in common with {library}"
            )
        if self.errors:
            return f"MPI cannot be used: {self.errors[0]}"
        if not self.sizes:
            return f"no rank reported its size, and the exit code was {self.exit_code}: MPI failed or hung"
        told = ", ".join(str(size) for size in sorted(set(self.sizes)))
        return (
            f"{len(self.ranks)} of {self.asked} ranks reported the size {told}, "
            f"and the exit code was {self.exit_code}"
        )


def command(
    python: str,
    *,
    size: int,
    timeout_s: float,
    library: str | None = None,
    tell: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """What each rank runs. `library`: the libmpi of a program that is linked to it, not of mpi4py. `tell`:
    variables by which the library says what way it takes.

    The program's text is an argument, so that the image needs to hold nothing."""
    words = [python, "-c", _PROGRAM, "--size", str(size), "--timeout", f"{timeout_s:g}"]
    if library is not None:
        words += ["--library", library]
    for name, value in (tell or {}).items():
        words += ["--tell", f"{name}={value}"]
    return tuple(words)


def read(stdout: str, *, exit_code: int, asked: int) -> Proof:
    """The answers in what the ranks printed; other lines are theirs who started them."""
    told = list(_answers(stdout))
    ranks = [each for each in told if isinstance(each.get("rank"), int) and isinstance(each.get("size"), int)]
    return Proof(
        asked=asked,
        exit_code=exit_code,
        sizes=tuple(int(str(each["size"])) for each in ranks),
        ranks=tuple(int(str(each["rank"])) for each in ranks),
        hosts=tuple(one_line(str(each.get("host", ""))) for each in ranks),
        library=next((one_line(str(each["library"])) for each in ranks if "library" in each), None),
        errors=tuple(
            one_line(str(each["error"]), limit=_MOST_CHARACTERS) for each in told if "error" in each
        ),
    )


def _answers(stdout: str) -> Iterator[dict[str, object]]:
    decoder = json.JSONDecoder()
    for part in stdout.split(proof.MARK)[1:]:  # a launcher may put its own words before a line
        try:
            found, _ = decoder.raw_decode(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
