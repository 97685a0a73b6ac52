"""Schedulers: ways to get nodes. One module each, satisfying `Scheduler`.

A scheduler knows nothing of engines and launchers. It says how its jobs are asked for, told of and ended,
and gives the job script three functions of bash that reach its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import UNSET

from fairlead.errors import ToolError
from fairlead.model import Job, Outcome, QueueEntry, SchedulerFacts, Site


class Asks(Protocol):
    """What a scheduler's probe may ask of the machine."""

    def which(self, name: str) -> str | None: ...

    def run(self, argv: Sequence[str], *, timeout_s: float = 20.0) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Query:
    """A question about jobs, and how its answer is read: ToolError for what it does not know."""

    argv: tuple[str, ...]
    parse: Callable[[Outcome], tuple[QueueEntry, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """How an element of an array job knows itself, in bash; each element is a point of a sweep.

    `index`: its number, from 0; "" when the scheduler has no arrays, and each point is a job of its own, with
    the run's name as the script's first argument. `job_id`: its job number, as `cancel` and `queries` take
    it. `snippet`: SNIPPET, with `again` for one element.
    """

    index: str
    job_id: str
    snippet: str


class Scheduler(Protocol):
    """A module of `fairlead.schedulers`. All of it but `probe` is pure."""

    NAME: str
    #: The job runs on this machine at once, under Fairlead's eyes; nothing below is asked of it.
    AT_ONCE: bool
    #: Bash: the job's number, in the job.
    JOB_ID: str
    #: The form of the job numbers that `job_id` and `again` give, and that commands are given: a pattern.
    JOB_ID_FORM: str
    #: Bash, for jobs of several nodes: `hosts` prints the nodes' names, the first node's first;
    #: `on_each_node SCRIPT HOW ARGUMENT…` runs `bash SCRIPT HOW NUMBER ARGUMENT…` on every node and fails as
    #: soon as one does; `again` puts the job back into the queue and prints its number there; it may set
    #: AGAIN, the code that the script must end with then.
    SNIPPET: str
    #: Signals for the ranks of other nodes go by a file of the run's folder (`by_host`).
    SIGNALS_BY_FILE: bool
    #: The scheduler itself sends SIGUSR1 before the end of the job's time; else the job script does.
    WARNS: bool
    #: The script is handed over on the standard input.
    SUBMITS_STDIN: bool
    #: For sweeps.
    ARRAY: Array
    #: Why nobody has seen it run on the real scheduler; "" when the tests do.
    UNTESTED: str

    def probe(self, asks: Asks) -> SchedulerFacts | None:
        """What is known of the scheduler here; None when it is not here."""
        ...

    def objection(self, job: Job, site: Site) -> tuple[str, str] | None:
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

    def attach(self, job_id: str) -> tuple[str, ...] | None:
        """A shell on the job's first node; None when the scheduler has no way to one."""
        ...


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
    """What a command printed, for an error's context."""
    return "\n".join(filter(None, (outcome.stderr.strip(), outcome.stdout.strip()))) or (
        f"exit code {outcome.exit_code}"
    )


def found_job_id(outcome: Outcome, pattern: str) -> str:
    """The first group of the pattern's last match in what a submission printed: sites put notices before it.
    Raises ToolError when there is none."""
    found = re.findall(pattern, outcome.stdout, re.MULTILINE)
    if not found:
        raise ToolError(f"{outcome.argv[0]} did not tell the job's number", context=said(outcome))
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
