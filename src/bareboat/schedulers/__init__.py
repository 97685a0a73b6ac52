"""Schedulers: ways to get nodes. One module each, satisfying `Scheduler`.

A scheduler knows nothing of engines and launchers. It says how its jobs are asked for, told of and ended,
and gives the job script three functions of bash that reach its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec import UNSET

from bareboat.errors import ToolError
from bareboat.model import Job, Mark, Outcome, QueueEntry, Refusal, SchedulerFacts, Site
from bareboat.printable import one_line

T = TypeVar("T")

#: Of the lines that are not understood, so many are shown.
_MOST_REMARKS = 3
_MOST_SAID_LINES = 20
_MOST_UNANSWERED = 400
#: Where a tool's version is looked for: a search may take the square of it.
_MOST_VERSION = 4000
_LONGEST_LINE = 100_000


#: Of a scheduler that limits memory by the job's own key.
MEM_PER_NODE = ("scheduling.mem_per_node_bytes", "a larger mem_per_node_bytes under [scheduling]")


class Asks(Protocol):
    """What a scheduler's probe may ask of the machine."""

    def which(self, name: str) -> str | None: ...

    def run(self, argv: Sequence[str]) -> Outcome: ...

    def run_all(self, questions: Sequence[Sequence[str]]) -> Sequence[Outcome]:
        """The answers to questions that are asked side by side; one may have `Outcome.unanswered`."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """A question about jobs, and how its answer is read: ToolError for what it does not know. `odd`: the
    lines of an answer that are not understood; a job that is missing may stand in one of them."""

    argv: tuple[str, ...]
    parse: Callable[[Outcome], tuple[QueueEntry, ...]]
    odd: Callable[[Outcome], Iterable[str]] = lambda _: ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """How an element of an array job knows itself, in bash; each element is a point of a sweep.

    `index`: its number, from 0; "" when the scheduler has no arrays, and each point is a job of its own, with
    the run's name as the script's first argument. `job_id`: its job number, as `cancel` and `queries` take
    it.
    """

    index: str
    job_id: str


class Scheduler(Protocol):
    """A module of `bareboat.schedulers`. All of it but `probe` is pure."""

    NAME: str
    #: What it is called in messages.
    TITLE: str
    #: The job runs on this machine at once, under Bareboat's eyes; nothing below is asked of it.
    AT_ONCE: bool
    #: Bash: the job's number, in the job.
    JOB_ID: str
    #: The form of the job numbers that `job_id` and `again` give, and that commands are given: a pattern.
    JOB_ID_FORM: str
    #: Signals for the ranks of other nodes go by a file of the run's folder (`by_host`).
    SIGNALS_BY_FILE: bool
    #: The scheduler itself sends SIGUSR1 before the end of the job's time; else the job script does.
    WARNS: bool
    #: The script is handed over on the standard input.
    SUBMITS_STDIN: bool
    #: The lines that it writes into the output of a job that it ends.
    MARKS: tuple[Mark, ...]
    #: For a job that its memory limit ended: the key that changes the limit, and what to do.
    MORE_MEMORY: tuple[str, str]
    #: For sweeps.
    ARRAY: Array
    #: The command that lists the user's own jobs.
    LIST: str
    #: Why nobody has seen it run on the real scheduler; "" when the tests do.
    UNTESTED: str
    # STARTS_BY: the command by which the scheduler starts ranks itself, where it has one.

    def snippet(self) -> str:
        """Bash, for jobs of several nodes: `hosts` prints the nodes' names, the first node's first;
        `on_each_node SCRIPT HOW ARGUMENT…` runs `bash SCRIPT HOW NUMBER ARGUMENT…` on every node and fails as
        soon as one does; `again`, given the script's own arguments, puts the job (or the array's element)
        back into the queue and prints its number there; it may set AGAIN, the code that the script must end
        with then."""
        ...

    def probe(self, asks: Asks) -> SchedulerFacts | None:
        """What is known of the scheduler here; None when it is not here."""
        ...

    def objection(self, job: Job, site: Site) -> Refusal | None:
        """Why the job cannot be had here, with the remedy; None when nothing is known against it."""
        ...

    def warnings(self, job: Job, site: Site) -> tuple[str, ...]:
        """What the user should know although the job can run."""
        ...

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        """The lines at the top of the job script that ask for what the job needs; for a sweep, that it is an
        array."""
        ...

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        """Hand the script over; what it prints is to go to the log."""
        ...

    def job_id(self, outcome: Outcome) -> str:
        """The job's number in what `submit` printed. Raises PlanError for a refusal."""
        ...

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        """Questions about these jobs: the first that knows a job answers for it."""
        ...

    def element(self, job_id: str, index: int) -> str:
        """The job number of an array's element, counted from 0."""
        ...

    def has_arrays(self, site: Site) -> bool:
        """Whether a sweep is handed over as one array job there."""
        ...

    def cancel(self, job_id: str) -> tuple[str, ...]: ...

    def attach(self, job_id: str, words: Sequence[str] | None) -> tuple[str, ...] | None:
        """These words in a terminal on the job's first node, or without words the node's shell; None when the
        scheduler has no way to that."""
        ...


def starts_by(scheduler: Scheduler) -> str:
    """The command by which the scheduler starts ranks itself, or ""; it says it as its `STARTS_BY`."""
    return str(getattr(scheduler, "STARTS_BY", ""))


def job_name(job: Job) -> str:
    """The job's name as every scheduler takes it: they stumble over spaces, colons and leading digits."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", job.name) or "job"
    return name if name[0].isalpha() else f"job-{name}"


def array_range(job: Job, *, first: int = 0) -> str | None:
    """The numbers of a sweep's elements, FIRST-LAST; None when the job is no sweep."""
    return None if job.sweep is UNSET else f"{first}-{first + len(job.sweep.points) - 1}"


def at_once(job: Job) -> int | None:
    """So many of a sweep's elements may run at the same time."""
    return None if job.sweep is UNSET else job.sweep.at_once


def said(outcome: Outcome) -> str:
    """The end of what a command printed, for an error's context."""
    lines = [line for text in (outcome.stderr, outcome.stdout) for line in text.strip().splitlines()]
    return "\n".join(map(one_line, lines[-_MOST_SAID_LINES:])) or f"exit code {outcome.exit_code}"


def unanswered(*outcomes: Outcome) -> list[str]:
    """Remarks on questions without an answer, of which the job may do without."""
    return [one_line(outcome.stderr, limit=_MOST_UNANSWERED) for outcome in outcomes if outcome.unanswered]


def each_line(tool: str, text: str, read: Callable[[str], T], remarks: list[str]) -> list[T]:
    """What `read` makes of each line that is not empty. For a line that it does not understand (it raises
    ValueError or LookupError) there is a remark."""
    found, odd = [], []
    for line in text.splitlines():
        try:
            if len(line) > _LONGEST_LINE:
                odd.append(line)
            elif line.strip():
                found.append(read(line))
        except (ValueError, LookupError):
            odd.append(line)
    remarks += odd_lines(tool, odd)
    return found


def odd_lines(tool: str, lines: Sequence[str]) -> list[str]:
    """Remarks on lines of a tool's output that are not understood."""
    shown = [
        f"{tool} printed a line that is not understood: {one_line(line)}" for line in lines[:_MOST_REMARKS]
    ]
    more = len(lines) - len(shown)
    return [*shown, f"{tool} printed {more} more such lines"] if more else shown


def number(text: str) -> int:
    """A count that a tool printed. Raises ValueError for what is none, and for one beyond all reason."""
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError(text)
    return int(text)


def number_or_none(text: str) -> int | None:
    """The same; None for what is no count."""
    try:
        return number(text)
    except ValueError:
        return None


def name_in(text: str) -> str:
    """A name that a tool printed. Raises ValueError for what cannot be one."""
    if not re.fullmatch(r"[\w.@:+/-]{1,255}", text):
        raise ValueError(text)
    return text


def version_in(text: str, pattern: str = r"(\d[\w.+-]{0,40})") -> str:
    """The first group of the pattern's first match; "" without one."""
    found = re.search(pattern, text[:_MOST_VERSION])
    return found[1][:60] if found else ""


def pairs(text: str, separator: str | None = None) -> dict[str, str]:
    """The first word of each line, or what stands before the separator, and what follows it."""
    parts = (line.strip().split(separator, 1) for line in text.splitlines())
    return {part[0]: part[1].strip() for part in parts if len(part) == 2}


def check_answered(outcome: Outcome, forgotten: str) -> None:
    """Raise ToolError for a question about jobs that was not answered. `forgotten`: the pattern of what a
    command says, also by its exit code, of jobs that it does not know."""
    failed = not outcome.ok and not outcome.stdout.strip() and outcome.stderr.strip()
    if failed and not re.search(forgotten, outcome.stderr[:_MOST_VERSION], re.IGNORECASE):
        raise ToolError(
            f"{outcome.argv[0]} does not answer", context=said(outcome), remedy=" ".join(outcome.argv[:2])
        )


def found_job_id(outcome: Outcome, pattern: str) -> str:
    """The first group of the pattern's last match in what a submission printed: sites put notices before it.
    Raises ToolError when there is none."""
    found = re.findall(pattern, outcome.stdout, re.MULTILINE)
    if not found:
        raise ToolError(f"{outcome.argv[0]} returned no job ID", context=said(outcome))
    return str(found[-1])


def cpus_per_node(job: Job) -> int:
    return job.topology.ranks_per_node * (job.topology.cpus_per_rank or 1)


def gpus_per_node(job: Job) -> int:
    return job.topology.ranks_per_node * job.topology.gpus_per_rank


def clock(seconds: int) -> str:
    """HH:MM:SS, the way in which all schedulers read a time."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def mebibytes(size: int) -> int:
    """Rounded up."""
    return -(-size // 2**20)
