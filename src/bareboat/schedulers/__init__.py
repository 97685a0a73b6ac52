"""Schedulers. One module each, which satisfies `Scheduler`.

A scheduler module does not depend on engines and launchers. It defines how jobs are requested, queried and
cancelled, and gives the job script three bash functions that reach its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec import UNSET

from bareboat.model import Job, Mark, Outcome, QueueEntry, Refusal, SchedulerFacts, Site
from bareboat_base.errors import ToolError
from bareboat_base.printable import one_line

T = TypeVar("T")

#: The setting of facts that names the cluster.
CLUSTER = "cluster"
#: The number of unparsable lines that are shown.
_MOST_REMARKS = 3
#: The setting of facts that are assumed: the scheduler is not on this machine.
ASSUMED = "assumed"
_MOST_SAID_LINES = 20
_MOST_UNANSWERED = 400
#: Limit of the text searched for a version, since a search may take quadratic time.
_MOST_VERSION = 4000
_LONGEST_LINE = 100_000


#: Of a scheduler that limits memory by the job's own key.
MEM_PER_NODE = ("scheduling.mem_per_node_bytes", "a larger mem_per_node_bytes under [scheduling]")


class Asks(Protocol):
    """The access of a scheduler's probe to the machine."""

    def which(self, name: str) -> str | None: ...

    def run(self, argv: Sequence[str]) -> Outcome: ...

    def run_all(self, questions: Sequence[Sequence[str]]) -> Sequence[Outcome]:
        """The answers to questions that are asked side by side; one may have `Outcome.unanswered`."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """A query about jobs and its parser, which raises ToolError for unknown output. `odd`: the lines that
    cannot be parsed; one of them may hold a job that seems to be missing."""

    argv: tuple[str, ...]
    parse: Callable[[Outcome], tuple[QueueEntry, ...]]
    odd: Callable[[Outcome], Iterable[str]] = lambda _: ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a pending job among those that the scheduler considers, 1 is next. `starts_at`: the
    expected start, in the scheduler's own words; "" when unknown."""

    position: int
    of: int
    queue: str = ""
    starts_at: str = ""

    def __str__(self) -> str:
        where = f" in {self.queue}" if self.queue else ""
        start = f", expected start {self.starts_at}" if self.starts_at else ""
        return f"position {self.position} of {self.of}{where}{start}"


@dataclass(frozen=True, slots=True)
class PlaceQuery:
    """A query about the whole queue, for the place of one job; None where it is not in it."""

    argv: tuple[str, ...]
    parse: Callable[[Outcome], Place | None]


@dataclass(frozen=True, slots=True)
class ClusterQuery:
    """A query about the cluster that this machine belongs to. `pattern`: its first group is the name."""

    argv: tuple[str, ...]
    pattern: str

    def name(self, outcome: Outcome) -> str:
        """The name; "" when unknown."""
        found = re.search(self.pattern, outcome.stdout, re.MULTILINE)
        return found[1] if found is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """How an element of an array job knows itself, in bash; each element is a point of a sweep.

    `index`: its number, from 0; "" when the scheduler has no arrays, and each point is a job of its own, with
    the run's name as the script's first argument. `job_id`: its job number, as `cancel` and `queries` take
    it.
    """

    index: str
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The scheduler's job to which a process belongs. `here`: this machine is one of its nodes, not the login
    node where salloc ran. `start`: the command prefix that starts a program on the first node."""

    scheduler: str
    job_id: str
    nodes: int
    here: bool = True
    start: tuple[str, ...] = ()


#: The number of hosts in a host file.
CountHosts = Callable[[str], int]


class Scheduler(Protocol):
    """A module of `bareboat.schedulers`. Everything except `probe` is pure."""

    NAME: str
    #: What it is called in messages.
    TITLE: str
    #: The job runs at once on this machine, supervised by Bareboat; nothing below is used.
    AT_ONCE: bool
    #: Bash: the job ID, inside the job.
    JOB_ID: str
    #: A pattern of the job IDs that `job_id` and `again` return and commands accept.
    JOB_ID_FORM: str
    #: Signals for ranks on other nodes go through a file of the run's directory (`by_host`).
    SIGNALS_BY_FILE: bool
    #: The scheduler itself sends SIGUSR1 before the end of the job's time; otherwise the job script does.
    WARNS: bool
    #: The script is submitted on standard input.
    SUBMITS_STDIN: bool
    #: The lines that it writes into the output of a job that it terminates.
    MARKS: tuple[Mark, ...]
    #: For a job that its memory limit ended: the key that changes the limit, and what to do.
    MORE_MEMORY: tuple[str, str]
    #: For sweeps.
    ARRAY: Array
    #: The command that lists the user's own jobs.
    LIST: str
    #: Why it is not tested on the real scheduler; "" when it is.
    UNTESTED: str
    # STARTS_BY: the command by which the scheduler starts ranks itself, where it has one.
    # allocation(environment, count_hosts): the job that the variables belong to; see `allocation` below.
    # place(job_id) -> PlaceQuery, where the scheduler shows the order of pending jobs.
    # CLUSTERS: ClusterQuery, where another cluster may have the same job IDs; `probe` finds the same name.
    # AFTER_FAILURE: true where a job that waits for another one starts also when that fails.

    def snippet(self) -> str:
        """Bash, for jobs of several nodes: `hosts` prints the nodes' names, the first node first;
        `on_each_node SCRIPT HOW ARGUMENT…` runs `bash SCRIPT HOW NUMBER ARGUMENT…` on every node and fails as
        soon as one does; `again`, given the script's own arguments, puts the job (or the array's element)
        back into the queue and prints its number there; it may set AGAIN, the code that the script must end
        with then."""
        ...

    def probe(self, asks: Asks) -> SchedulerFacts | None:
        """The facts about the scheduler; None when it is not installed."""
        ...

    def objection(self, job: Job, site: Site) -> Refusal | None:
        """Why the job cannot run here, with the remedy; None without a known reason."""
        ...

    def warnings(self, job: Job, site: Site) -> tuple[str, ...]:
        """Warnings about a job that can run."""
        ...

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        """The lines at the top of the job script that request the job's resources and, for a sweep, an
        array."""
        ...

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        """The command that submits the script; its output goes to the log."""
        ...

    def job_id(self, outcome: Outcome) -> str:
        """The job ID from the output of `submit`. Raises PlanError for a refusal."""
        ...

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        """Queries about jobs; the first that knows a job decides."""
        ...

    def element(self, job_id: str, index: int) -> str:
        """The job ID of an array's element, counted from 0."""
        ...

    def has_arrays(self, site: Site) -> bool:
        """Whether a sweep is submitted as one array job."""
        ...

    def cancel(self, job_id: str) -> tuple[str, ...]: ...

    def attach(self, job_id: str, words: Sequence[str] | None) -> tuple[str, ...] | None:
        """The command that runs `words` in a terminal on the job's first node, or opens the node's shell
        without words; None when the scheduler does not support it."""
        ...


def assumed_facts(job: Job, title: str) -> SchedulerFacts:
    """What a plan assumes of a scheduler that this machine does not have: all that the job requests exists.
    Each scheduler reads its own settings: Grid Engine a parallel environment and a GPU resource, PBS its
    kind."""
    assert job.scheduler is not None
    slots = cpus_per_node(job)
    unknown = "partitions, accounts, limits and MPI plugins"
    settings = {
        "gridengine": {"pe mpi": str(slots), "gpu": "gpu"},
        "pbs": {"flavour": "pro"},
    }.get(job.scheduler, {})
    more = {
        "gridengine": f'; assumed: a parallel environment "mpi" with {slots} slots on each node'
        + (' and a resource "gpu"' if gpus_per_node(job) else ""),
        "pbs": "; assumed: PBS Professional or OpenPBS",
    }.get(job.scheduler, "")
    return SchedulerFacts(
        name=job.scheduler,
        version="",
        settings={**settings, ASSUMED: "yes"},
        remarks=(f"{title} is not available on this machine: {unknown} are not checked{more}",),
    )


def starts_by(scheduler: Scheduler) -> str:
    """The command with which the scheduler starts ranks itself (`STARTS_BY`), or ""."""
    return str(getattr(scheduler, "STARTS_BY", ""))


def allocation(
    scheduler: Scheduler, environment: Mapping[str, str], count_hosts: CountHosts
) -> Allocation | None:
    """The scheduler's job to which a process with these variables belongs; None outside of a job, and for a
    scheduler that sets no variables."""
    find: Callable[[Mapping[str, str], CountHosts], Allocation | None] | None
    find = getattr(scheduler, "allocation", None)
    return find(environment, count_hosts) if find else None


def place_query(scheduler: Scheduler, job_id: str) -> PlaceQuery | None:
    """The query for a pending job's place in the queue (`place`); None where the scheduler shows none."""
    place: Callable[[str], PlaceQuery] | None = getattr(scheduler, "place", None)
    return None if place is None else place(job_id)


def cluster_query(scheduler: Scheduler) -> ClusterQuery | None:
    """The query for the name of this machine's cluster (`CLUSTERS`); None without one."""
    query: ClusterQuery | None = getattr(scheduler, "CLUSTERS", None)
    return query


def starts_after_failure(scheduler: Scheduler) -> bool:
    """Whether a job that waits for another one starts also when that fails (`AFTER_FAILURE`)."""
    return bool(getattr(scheduler, "AFTER_FAILURE", False))


def partition_word(scheduler: Scheduler) -> str:
    """The scheduler's term for a partition (`PARTITION`)."""
    return str(getattr(scheduler, "PARTITION", "queue"))


def limits_virtual_memory(scheduler: Scheduler) -> bool:
    """Whether a job's requested memory limits its address space (`LIMITS_VIRTUAL_MEMORY`)."""
    return bool(getattr(scheduler, "LIMITS_VIRTUAL_MEMORY", False))


def job_name(job: Job) -> str:
    """The job's name without spaces, colons and leading digits, which schedulers reject."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", job.name) or "job"
    return name if name[0].isalpha() else f"job-{name}"


def mail_to(job: Job) -> str | None:
    """The address for a mail at the job's end; "" is the user's own, None is no mail."""
    if job.notify is UNSET or not isinstance(job.notify, str):
        return None
    return "" if job.notify == "mail" else job.notify


def array_range(job: Job, *, first: int = 0) -> str | None:
    """The numbers of a sweep's elements, FIRST-LAST; None when the job is not a sweep."""
    return None if job.sweep is UNSET else f"{first}-{first + len(job.sweep.points) - 1}"


def at_once(job: Job) -> int | None:
    """The number of a sweep's elements that may run at the same time."""
    return None if job.sweep is UNSET else job.sweep.at_once


def said(outcome: Outcome) -> str:
    """The end of a command's output, for an error's context."""
    lines = [line for text in (outcome.stderr, outcome.stdout) for line in text.strip().splitlines()]
    return "\n".join(map(one_line, lines[-_MOST_SAID_LINES:])) or f"exit code {outcome.exit_code}"


def silent(name: str, title: str, outcome: Outcome, *, version: str = "") -> SchedulerFacts:
    """The facts about a scheduler that is installed and does not answer."""
    detail = f"{title} does not answer: {said(outcome)}"
    return SchedulerFacts(name=name, version=version, works=False, detail=detail)


def unanswered(*outcomes: Outcome) -> list[str]:
    """Remarks on unanswered questions, which the job may not need."""
    return [one_line(outcome.stderr, limit=_MOST_UNANSWERED) for outcome in outcomes if outcome.unanswered]


def each_line(tool: str, text: str, read: Callable[[str], T], remarks: list[str]) -> list[T]:
    """Parse each line that is not empty with `read`. Lines for which it raises ValueError or LookupError get
    a remark."""
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
    """Remarks on unparsable lines of a tool's output."""
    shown = [
        f"{tool} printed a line that cannot be parsed: {one_line(line)}" for line in lines[:_MOST_REMARKS]
    ]
    more = len(lines) - len(shown)
    return [*shown, f"{tool} printed {more} more such lines"] if more else shown


def number(text: str) -> int:
    """A count in a tool's output. Raises ValueError for other text and for implausible counts."""
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError(text)
    return int(text)


def number_or_none(text: str) -> int | None:
    """Like `number`; None for other text."""
    try:
        return number(text)
    except ValueError:
        return None


def name_in(text: str) -> str:
    """A name in a tool's output. Raises ValueError for invalid names."""
    if not re.fullmatch(r"[\w.@:+/-]{1,255}", text):
        raise ValueError(text)
    return text


def version_in(text: str, pattern: str = r"(\d[\w.+-]{0,40})") -> str:
    """The first group of the pattern's first match; "" without one."""
    found = re.search(pattern, text[:_MOST_VERSION])
    return found[1][:60] if found else ""


def pairs(text: str, separator: str | None = None) -> dict[str, str]:
    """The first word of each line, or the text before the separator, and the text after it."""
    parts = (line.strip().split(separator, 1) for line in text.splitlines())
    return {part[0]: part[1].strip() for part in parts if len(part) == 2}


def check_answered(outcome: Outcome, forgotten: str) -> None:
    """Raise ToolError for a failed query about jobs. `forgotten`: the pattern of a command's message about
    unknown jobs."""
    failed = not outcome.ok and not outcome.stdout.strip() and outcome.stderr.strip()
    if failed and not re.search(forgotten, outcome.stderr[:_MOST_VERSION], re.IGNORECASE):
        raise ToolError(
            f"{outcome.argv[0]} does not answer", context=said(outcome), remedy=" ".join(outcome.argv[:2])
        )


def found_job_id(outcome: Outcome, pattern: str) -> str:
    """The first group of the pattern's last match in a submission's output, which may start with a site's
    notices. Raises ToolError when there is none."""
    found = re.findall(pattern, outcome.stdout, re.MULTILINE)
    if not found:
        raise ToolError(f"{outcome.argv[0]} returned no job ID", context=said(outcome))
    return str(found[-1])


def cpus_per_node(job: Job) -> int:
    return job.topology.ranks_per_node * (job.topology.cpus_per_rank or 1)


def gpus_per_node(job: Job) -> int:
    return job.topology.ranks_per_node * job.topology.gpus_per_rank


def clock(seconds: int) -> str:
    """HH:MM:SS, the time format of all schedulers."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def mebibytes(size: int) -> int:
    """The size in MiB, rounded up."""
    return -(-size // 2**20)
