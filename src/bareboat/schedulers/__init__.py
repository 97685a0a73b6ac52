"""Schedulers. One class each, in a file of its own, with `Scheduler` as its base class.

A scheduler does not depend on engines and launchers. It defines how jobs are requested, queried and
cancelled, and gives the job script three bash functions that reach its nodes. Everything particular to a
scheduler is in its file. `requests` and `tool_output` have what they share.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from bareboat.backend import Backend
from bareboat.model import Job, Mark, Outcome, QueueEntry, Refusal, SchedulerFacts, Site
from bareboat.schedulers import by_partition, tool_output

#: The setting of facts that names the cluster.
CLUSTER = "cluster"
#: The setting of facts that are assumed: the scheduler is not on this machine.
ASSUMED = "assumed"
#: Of a scheduler that limits memory by the job's own key.
MEM_PER_NODE = ("scheduling.mem_per_node_bytes", "a larger mem_per_node_bytes under [scheduling]")


class CommandRunner(Protocol):
    """The access of a scheduler's probe to the machine."""

    @property
    def user(self) -> str:
        """The name of this process's user."""
        ...

    def which(self, name: str) -> str | None: ...

    def run(self, argv: Sequence[str]) -> Outcome: ...

    def run_all(self, questions: Sequence[Sequence[str]]) -> Sequence[Outcome]:
        """The outcomes of commands that run concurrently; one may have `Outcome.unanswered`."""
        ...


class Query(Struct, frozen=True):
    """A query about jobs and its parser, which raises ToolError for unknown output. `odd`: the lines that
    cannot be parsed; one of them may hold a job that seems to be missing."""

    argv: tuple[str, ...]
    parse: Callable[[Outcome], tuple[QueueEntry, ...]]
    odd: Callable[[Outcome], Iterable[str]] = lambda _: ()


class ErrorQuery(Struct, frozen=True):
    """A query for why a job is in an error state; its parser returns "" when that is unknown."""

    argv: tuple[str, ...]
    parse: Callable[[Outcome], str]


class ClusterQuery(Struct, frozen=True):
    """A query about the cluster that this machine belongs to. `pattern`: its first group is the name."""

    argv: tuple[str, ...]
    pattern: str

    def name(self, outcome: Outcome) -> str:
        """The name; "" when unknown."""
        found = re.search(self.pattern, outcome.stdout, re.MULTILINE)
        return found[1] if found is not None else ""


class Array(Struct, frozen=True, kw_only=True):
    """How an element of an array job knows itself, in bash; each element is a point of a sweep.

    `index`: its number, from 0; "" when the scheduler has no arrays, and each point is a job of its own, with
    the run's name as the script's first argument. `job_id`: its job number, as `cancel` and `queries` take
    it.
    """

    index: str
    job_id: str


class Allocation(Struct, frozen=True, kw_only=True):
    """The scheduler's job to which a process belongs. `here`: this machine is one of its nodes, not the login
    node where salloc ran. `start`: the command prefix that starts a program on the first node. `of_tasks`:
    the environment variables that describe the job's tasks: `start` must not see them, the program does."""

    scheduler: str
    job_id: str
    nodes: int
    here: bool = True
    start: tuple[str, ...] = ()
    of_tasks: dict[str, str] = {}

    def started(self, *words: str) -> tuple[str, ...]:
        """The command, started on the first node."""
        if not self.start or not self.of_tasks:
            return (*self.start, *words)
        hidden = (f"--unset={name}" for name in self.of_tasks)
        shown = (f"{name}={value}" for name, value in self.of_tasks.items())
        return ("env", *hidden, *self.start, "env", *shown, *words)


#: The number of hosts in a host file, or in what a command prints.
CountHosts = Callable[[str | tuple[str, ...]], int]


class Scheduler(Backend):
    """A scheduler. Everything except `probe` is pure."""

    #: What it is called in messages.
    TITLE: str
    #: Why it is not tested on the real scheduler; "" when it is.
    UNTESTED = ""
    #: The job runs at once on this machine, supervised by Bareboat; nothing below is used.
    IS_LOCAL = False

    #: Its term for a partition.
    PARTITION = "queue"
    #: A job without a partition is rejected where none is the default.
    NEEDS_PARTITION = False
    #: The command that checks whether its server is up.
    PING = ""
    #: The command that lists the user's own jobs.
    LIST: str
    #: The query for the name of this machine's cluster, where another one may have the same job IDs.
    CLUSTERS: ClusterQuery | None = None

    #: Bash: the job ID, inside the job.
    JOB_ID: str
    #: A pattern of the job IDs that `job_id` and `again` return and commands accept.
    JOB_ID_FORM = r"\d{1,20}"
    #: A pattern whose first group is the job ID in the last line that `submit` prints of it.
    JOB_ID_PRINTED = r"^(\d+)$"
    #: Patterns of what `submit` prints where it rejects a job -> the remedy. The last fits everything.
    REJECTIONS: Sequence[tuple[str, str]] = (("", "correct [scheduling] in the job file"),)
    #: The environment variable with the job ID, inside the job; "" for none.
    JOB_VARIABLE = ""
    #: Prefixes of the environment variables that describe a job.
    VARIABLES: tuple[str, ...] = ()
    #: For sweeps.
    ARRAY: Array

    #: Its jobs are Slurm's: srun starts their ranks, and MPI libraries find Slurm's variables in them.
    IN_SLURM = False
    #: Signals for ranks on other nodes go through a file of the run's directory (`by_host`).
    SIGNALS_BY_FILE = False
    #: The scheduler itself sends SIGUSR1 before the end of the job's time; otherwise the job script does.
    WARNS = False
    #: The script is submitted on standard input.
    SUBMITS_STDIN = False
    #: A job that waits for another one starts also when that fails.
    AFTER_FAILURE = False

    #: The lines that it writes into the output of a job that it terminates.
    MARKS: tuple[Mark, ...] = ()
    #: A pattern of the line in a job's output that announces its restart; "" for none.
    RESTART = ""
    #: For a job that its memory limit ended: the key that changes the limit, and what to do.
    MORE_MEMORY = MEM_PER_NODE

    # -- facts

    @abstractmethod
    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        """The facts about the scheduler; None when it is not installed."""

    def assumptions(self, job: Job) -> tuple[Mapping[str, str], str]:
        """The settings that a plan assumes where the scheduler is not installed, and the words for them."""
        return {}, ""

    def assumed(self, job: Job) -> SchedulerFacts:
        """The facts that a plan assumes where the scheduler is not installed: all that the job requests
        exists."""
        settings, words = self.assumptions(job)
        remark = (
            f"{self.TITLE} is not available on this machine: partitions, accounts, limits and MPI plugins "
            "are not checked" + (f"; assumed: {words}" if words else "")
        )
        return SchedulerFacts(
            name=self.NAME, version="", settings={**settings, ASSUMED: "yes"}, remarks=(remark,)
        )

    def allocation(self, environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
        """The scheduler's job to which a process with these variables belongs; None outside of a job, and for
        a scheduler that sets no variables."""
        return None

    # -- a job

    def objection(self, job: Job, site: Site) -> Refusal | None:
        """Why the job cannot run here, with the remedy; None without a known reason."""
        return by_partition.objection(self, job, site)

    def warnings(self, job: Job, site: Site) -> tuple[str, ...]:
        """Warnings about a job that can run."""
        return by_partition.warnings(self, job, site)

    @abstractmethod
    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        """The lines at the top of the job script that request the job's resources and, for a sweep, an
        array."""

    @abstractmethod
    def snippet(self) -> str:
        """Bash, for jobs of several nodes: `hosts` prints the nodes' names, the first node first;
        `on_each_node SCRIPT HOW ARGUMENT…` runs `bash SCRIPT HOW NUMBER ARGUMENT…` on every node and fails as
        soon as one does; `on_host HOST WORD…`, if there is one, runs a command on one node; `again`, given
        the script's own arguments, puts the job (or the array's element) back into the queue and prints its
        number there; it may set AGAIN, the code that the script must end with then. `find_lost`, if there is
        one, writes the names of lost nodes to $BAREBOAT_CONTROL/lost; `begin_scheduler`, if there is one,
        prepares the first node."""

    # -- its commands

    @abstractmethod
    def submit(self, script: str, log: str) -> tuple[str, ...]:
        """The command that submits the script. `log`: where the scheduler writes what it prints itself, and
        what the script prints before it opens its own log; by `log_pattern`."""

    def log_pattern(self, path: str, *, is_array: bool = False) -> str:
        """A path in the form that the scheduler takes for the log of a job; with `is_array`, one for each of
        its elements, by `element_logs`."""
        return path

    def element_logs(self, path: str, index: int) -> tuple[str, ...]:
        """The files that an array's element, counted from 0, may have for a log with this path."""
        return ()

    def job_id(self, outcome: Outcome) -> str:
        """The job ID from the output of `submit`. Raises PlanError for a refusal."""
        if not outcome.ok:
            raise tool_output.rejected(self.TITLE, outcome, self.REJECTIONS)
        return tool_output.found_job_id(outcome, self.JOB_ID_PRINTED)

    @abstractmethod
    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        """Queries about jobs; the first that knows a job decides."""

    @abstractmethod
    def cancel(self, job_id: str) -> tuple[str, ...]:
        """The command that cancels the job."""

    def attach(self, job_id: str, words: Sequence[str] | None) -> tuple[str, ...] | None:
        """The command that runs `words` in a terminal on the job's first node, or opens the node's shell
        without words; None when the scheduler does not support it."""
        return None

    def error(self, job_id: str) -> ErrorQuery | None:
        """The query for the cause of a stuck job; None where `queries` gives it."""
        return None

    # -- sweeps

    def has_arrays(self, site: Site) -> bool:
        """Whether a sweep is submitted as one array job."""
        return bool(self.ARRAY.index)

    def element(self, job_id: str, index: int) -> str:
        """The job ID of an array's element, counted from 0."""
        return job_id
