"""Launchers: ways to start the ranks of a job. One module each, satisfying `Launcher`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bareboat.model import Claim, Command, Image, Job, MpiFacts, Position, Refusal, Site, Start, Word
from bareboat.mpi.proven import Proven


@dataclass(frozen=True, slots=True)
class Launchable:
    """The launcher can start this job. `reason` says how; `host_mpi`: the host's MPI that it needs in the
    container; `proves`: what the ranks will prove beforehand; `note`: what an earlier proof said; `warning`:
    what nobody checks."""

    reason: str
    host_mpi: MpiFacts | None = None
    proves: Claim | None = None
    note: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a launcher may know beside the job: `site` is where the ranks run, `scheduler` what gives the
    nodes, `python` the interpreter of the environment, `engine` what holds the container, `mpi_plugins` what
    the scheduler's own start can tell MPI programs by, `proofs` what was proved of MPI on this site."""

    site: Site
    scheduler: str
    engine: str
    image: Image | None
    python: str
    mpi_plugins: tuple[str, ...] = ()
    proofs: tuple[Proven, ...] = ()


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


class Launcher(Protocol):
    """A module of `bareboat.launchers`. All of it is pure.

    What a launcher finds in the job script, on every node: BAREBOAT_NODE (its number, from 0),
    BAREBOAT_NODES, BAREBOAT_HOST (its name), BAREBOAT_MASTER (the first node's address), BAREBOAT_PORT (a
    port that was free there), BAREBOAT_INTERFACE (the network interface that leads there). Started rank by
    rank it has beside them RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    """

    NAME: str
    POSITION: Position
    START: Start
    #: Whether each rank's output is kept by itself, under the run's folder in logs/RANK.out and .err.
    #: What is started once per node writes it there; the job script does for what it starts rank by rank.
    KEEPS_OUTPUT: bool

    def judge(self, job: Job, surroundings: Surroundings) -> Launchable | Refusal:
        """Whether the launcher can start this job there."""
        ...

    def wrap(self, command: Command, job: Job, surroundings: Surroundings) -> Command:
        """What is started: once per node, or once per rank."""
        ...

    def passed(self, job: Job) -> Passed:
        """Variables of the job script that the ranks are to see."""
        ...

    def program(self, job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
        """For Start.PROGRAM: the words that start the ranks; the command of a rank follows them."""
        ...

    def prelude(self, job: Job, surroundings: Surroundings) -> str:
        """Lines of bash that run before each start, on the node or for the rank: where this launcher's ranks
        find their names, say. "" for none."""
        ...

    def proof(self, job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
        """For Start.PROGRAM: what the ranks run before the job, to see that they find each other; None:
        nothing."""
        ...


#: What ranks that are started one by one are told.
RANK_VARIABLES = (*RANK_NAMES, "GLOO_SOCKET_IFNAME")


#: A prelude. Left alone, gloo takes the interface of the host's name, which may not resolve, or be loopback.
INTERFACE = """\
unset GLOO_SOCKET_IFNAME
[ -z "$BAREBOAT_INTERFACE" ] || GLOO_SOCKET_IFNAME=$BAREBOAT_INTERFACE
"""


def threads(job: Job) -> dict[str, str]:
    """Left alone each rank starts a thread per core, and the ranks fight for them."""
    return {"OMP_NUM_THREADS": str(job.topology.cpus_per_rank or 1)}
