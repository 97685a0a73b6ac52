"""The MPI check: the command that each rank runs, the meaning of its output, and which steps of the ladder
earlier checks on this site passed or failed. Pure.

A step whose check failed is not used again for the same image in the same context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from bareboat.model import CheckSubject
from bareboat_base.expressions import expression
from bareboat_base.printable import one_line

#: The job script prints this for each rank of the check: it shows that the launcher has started the rank.
STARTED = "bareboat-rank"
#: Of an error: a dynamic linker's message about a library, and the remedy.
_MOST_CHARACTERS = 1000


class CheckOutput(Struct, frozen=True, kw_only=True):
    """The reports of the started ranks. `sizes` and `ranks` in the order of the reports."""

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
        """The result, for a message."""
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
    """The command that each rank runs. `library`: the libmpi of a program that is linked to it, not of
    mpi4py. `tell`: variables with which the library reports its transport.

    The program's text is an argument, so that the image needs no file."""
    from bareboat.mpi import check_program  # few jobs are checked
    from bareboat.mpi.text import program

    words = [python, "-c", program(check_program), "--size", str(size), "--timeout", f"{timeout_s:g}"]
    if library is not None:
        words += ["--library", library]
    for name, value in (tell or {}).items():
        words += ["--tell", f"{name}={value}"]
    return tuple(words)


def read(stdout: str, *, exit_code: int, asked: int) -> CheckOutput:
    """The reports in the ranks' output; other lines are from the launcher."""
    told = list(_answers(stdout))
    ranks = [each for each in told if isinstance(each.get("rank"), int) and isinstance(each.get("size"), int)]
    return CheckOutput(
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
    if not stdout:
        return
    import json

    from bareboat.mpi import check_program

    decoder = json.JSONDecoder()
    for part in stdout.split(check_program.MARK)[1:]:  # a launcher may prefix a line with its own text
        try:
            found, _ = decoder.raw_decode(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


class CheckResult(Struct, frozen=True, kw_only=True):
    """The result of one check: its subject, time (UTC) and run. `of_site`: it started no rank, which is not
    the image's fault."""

    subject: CheckSubject
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
    """The meaning of a check's output."""

    holds: bool
    said: str
    of_site: bool = False


#: Errors of a launcher that cannot load its own parts. Unavailable nodes or CPUs are the job's fault.
_OF_LAUNCHER = expression(
    r"invalid mpi type|\bmpi/\w+: |cannot create (?:mpi )?context|error while loading shared libraries"
    r"|(?:mpirun|mpiexec\S*|srun): (?:command not found|No such file|Permission denied)",
    re.IGNORECASE,
)
#: Errors of an MPI or its launcher before a rank can report.
_OF_MPI = expression(
    r"MPI_(?:Init|ABORT)|\bPMI(?:x|2|_|X)|UNMANAGED_SINGLETON|built with SLURM's PMI|PML add procs"
)
#: faulthandler's message when the check times out.
_HUNG = expression(r"^.*Timeout \(\d+:\d\d:\d\d", re.MULTILINE)


def verdict(log: str, *, asked: int, failed: bool) -> Verdict | None:
    """The result in a check's log. `failed`: the job script ended because of it. None when the log has no
    result of MPI: the job was cancelled, a node was lost, a container did not start."""
    found = read(log, exit_code=0, asked=asked)
    if found.holds:
        return Verdict(True, found.sentence)
    if not failed:
        return None
    if found.errors or (found.sizes and set(found.sizes) != {asked}):
        return Verdict(False, found.sentence)
    if _HUNG.search(log):
        return Verdict(False, "the ranks hung")
    if STARTED not in log and (told := _first(_OF_LAUNCHER, log)) is not None:
        return Verdict(False, one_line(told), of_site=True)
    told = _first(_OF_MPI, log)
    return Verdict(False, f"MPI did not start: {one_line(told, limit=200)}") if told is not None else None


def _first(pattern: re.Pattern[str], log: str) -> str | None:
    return next((line.strip() for line in log.splitlines() if pattern.search(line)), None)


def failed_steps(results: Iterable[CheckResult], context: str) -> dict[str, str]:
    """Step -> the result of its failed check in this context."""
    return {
        each.subject.step: _quoted(each)
        for each in results
        if each.subject.context == context and not each.holds and not (each.of_site and each.subject.launch)
    }


def broken(results: Iterable[CheckResult], site: str) -> dict[str, str]:
    """Process manager's title -> why it starts no rank on this site, according to its newest check."""
    newest: dict[str, CheckResult] = {}
    for each in sorted(results, key=lambda each: each.at, reverse=True):
        if each.subject.launch and each.subject.site == site:
            newest.setdefault(each.subject.launch, each)
    return {launch: _quoted(each) for launch, each in newest.items() if each.of_site}


def passed(results: Iterable[CheckResult], subject: CheckSubject) -> CheckResult | None:
    return next((each for each in results if each.subject == subject and each.holds), None)


def _quoted(result: CheckResult) -> str:
    return f"{result.said} ({result.day}, run {result.run_id})"
