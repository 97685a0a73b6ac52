"""Launchers: ways to start the ranks of a job. One module each, satisfying `Launcher`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from bareboat.model import CheckSubject, Command, Image, Job, MpiFacts, Refusal, Site, Start, Word
from bareboat.mpi.checks import CheckResult
from bareboat.mpi.ladder import Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a launcher may know beside the job: `site` is where the ranks run, `scheduler` what gives the
    nodes (`at_once`: this machine, now; `direct`: the command by which it starts ranks itself, or ""),
    `python` the interpreter of the environment, `engine` what holds the container (`contains`: whether it
    does), `mpi_plugins` the PMIs that the scheduler's own start supports, `mpi_checks` what MPI checks found
    on this site."""

    site: Site
    scheduler: str
    engine: str
    image: Image | None
    python: str
    contains: bool = True
    at_once: bool = False
    direct: str = ""
    mpi_plugins: tuple[str, ...] = ()
    mpi_checks: tuple[CheckResult, ...] = ()


#: Who a rank is and where it meets the others, by the names that PyTorch's env:// made common.
RANK_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


#: A launcher that names it among what is passed has processes that meet over the network, and that prove to
#: each other by it that they are of this run: the job script makes it, in hexadecimal digits.
SECRET = "BAREBOAT_SECRET"


class Passed(NamedTuple):
    """Variables by name, and by the beginning of their names. `own`: shell patterns for those, passed or not,
    that the launcher alone may set; what else the job's `[environment]` sets goes over what it gives
    (`bareboat.plan.environment`)."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    own: tuple[str, ...] = RANK_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a launcher starts this job. `reason`: in one sentence.

    `argv`: the launcher's words before the rank's command; `environment`: variables of every rank, below the
    job's own; `passed`: variables of the job script that the ranks get. `program`: for Start.PROGRAM, the
    words that start the ranks. `prelude`: lines of bash that run before each start, on the node or for the
    rank. `mpi_check`: for Start.PROGRAM, what the ranks run before the job, to check that they find each
    other. `host_mpi`: the host's MPI that the container needs; `check_subject`: what the check is about;
    `note`: what an earlier one showed; `warning`: what nothing checks."""

    reason: str
    argv: tuple[Word, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    passed: Passed = field(default_factory=Passed)
    program: tuple[Word, ...] = ()
    prelude: str = ""
    mpi_check: tuple[str, ...] | None = None
    host_mpi: MpiFacts | None = None
    check_subject: CheckSubject | None = None
    note: str = ""
    warning: str = ""

    def start(self, command: Command) -> Command:
        """What is started to run the command: once per node, or once per rank."""
        return msgspec.structs.replace(
            command,
            argv=(*self.argv, *command.argv),
            environment={**self.environment, **command.environment},
        )


class Launcher(Protocol):
    """A module of `bareboat.launchers`. All of it is pure.

    What a launcher finds in the job script, on every node: BAREBOAT_NODE (its number, from 0),
    BAREBOAT_NODES, BAREBOAT_HOST (its name), BAREBOAT_MASTER (the first node's address), BAREBOAT_PORT (a
    port that was free there), BAREBOAT_INTERFACE (the network interface that leads there). Started rank by
    rank it has beside them RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    """

    NAME: str
    START: Start
    #: Whether each rank's output is kept by itself, under the run's folder in logs/RANK.out and .err.
    #: What is started once per node writes it there; the job script does for what it starts rank by rank.
    KEEPS_OUTPUT: bool

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        """How the launcher starts this job there, or why it cannot."""
        ...


def rung(launcher: Launcher) -> Rung | None:
    """The step of MPI's ladder that a launcher of MPI programs is; it says it as its `RUNG`."""
    return getattr(launcher, "RUNG", None)


def replaces_mpi(launcher: Launcher) -> bool:
    """Whether programs that can use MPI form one world under this launcher without it."""
    return bool(getattr(launcher, "REPLACES_MPI", False))


def transport(launcher: Launcher) -> str:
    """By what ranks without MPI and NCCL communicate; a launcher says it as its `TRANSPORT`."""
    return str(getattr(launcher, "TRANSPORT", "gloo"))


#: The variables of ranks that are started one by one.
RANK_VARIABLES = (*RANK_NAMES, "GLOO_SOCKET_IFNAME")


#: A prelude. Left alone, gloo takes the interface of the host's name, which may not resolve, or be loopback.
INTERFACE = """\
unset GLOO_SOCKET_IFNAME
[ -z "$BAREBOAT_INTERFACE" ] || GLOO_SOCKET_IFNAME=$BAREBOAT_INTERFACE
"""


def threads(job: Job) -> dict[str, str]:
    """Left alone each rank starts a thread per core, and the ranks fight for them."""
    return {"OMP_NUM_THREADS": str(job.topology.cpus_per_rank or 1)}
