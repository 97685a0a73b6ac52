"""Launchers: ways to start the ranks of a job. One class each, in a file of its own, with `Launcher` as its
base class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from bareboat import commands
from bareboat.backend import Backend
from bareboat.model import CheckSubject, Command, Image, Job, MpiFacts, Refusal, Site, Start, Word
from bareboat.mpi.checks import CheckResult
from bareboat.mpi.start_methods import Rung


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a launcher knows besides the job: `site` is where the ranks run, `scheduler` allocates the nodes
    (`at_once`: this machine, now; `in_slurm`: its jobs are Slurm's), `python` is the interpreter of the
    environment, `engine` runs the container (`contains`: whether it does), `mpi_plugins` are the PMIs that
    srun supports, `mpi_checks` the results of MPI checks on this site."""

    site: Site
    scheduler: str
    engine: str
    image: Image | None
    python: str
    contains: bool = True
    at_once: bool = False
    in_slurm: bool = False
    mpi_plugins: tuple[str, ...] = ()
    mpi_checks: tuple[CheckResult, ...] = ()


#: Names of PyTorch's env:// for a rank's identity and its rendezvous.
RANK_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


#: In a shell that waits for a rank in the container and keeps its exit code in $code: a launcher that sees a
#: rank fail ends the others, which may still save after a signal for the run (processes.sh, pass_once).
LET_SAVE = """\
i=0
while [ "$code" != 0 ] && [ -e "${BAREBOAT_RUN_DIR:-}/stopping" ] && [ "$i" -lt 300 ] &&
  [ "$(cat "$BAREBOAT_RUN_DIR"/exits.* | wc -l)" -lt "$WORLD_SIZE" ]; do sleep 0.2; i=$((i + 1)); done
"""

#: A launcher that passes it has processes that connect over the network and authenticate each other with it.
#: The job script generates it, in hexadecimal digits.
SECRET = "BAREBOAT_SECRET"


class Passed(NamedTuple):
    """Variables by name and by prefix. `own`: shell patterns of those, passed or not, that only the launcher
    may set; for all others, the job's `[environment]` overrides what the launcher sets
    (`bareboat.plan.environment`)."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    own: tuple[str, ...] = RANK_NAMES


class Launch(Struct, frozen=True, kw_only=True):
    """How a launcher starts this job. `reason`: one sentence.

    `argv`: the launcher's words before the rank's command; `environment`: variables of every rank, which the
    job's override; `passed`: variables of the job script that the ranks get. `program`: for Start.PROGRAM,
    the words that start the ranks. `prelude`: lines of bash that run before each start, on the node or for
    the rank. `mpi_check`: for Start.PROGRAM, the command by which the ranks check before the job that they
    find each other. `host_mpi`: the host's MPI that the container needs; `check_subject`: the subject of the
    check; `note`: the result of an earlier one; `warning`: what is not checked. `runner`: a Python program
    that runs the script of a command `python SCRIPT`, in place of the interpreter itself."""

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
    runner: str = ""

    def start(self, command: Command) -> Command:
        """The command to start: once per node, or once per rank."""
        words = command.argv
        at = _script_in(words) if self.runner else 0
        return msgspec.structs.replace(
            command,
            argv=(*self.argv, *words[:at], *(("-c", self.runner) if at else ()), *words[at:]),
            environment={**self.environment, **command.environment},
        )


def _script_in(words: Sequence[Word]) -> int:
    """The place of the script in `python [-u …] SCRIPT.py …`; 0 in other commands."""
    named = [word if isinstance(word, str) else "" for word in words]
    script = commands.file(named) if named and commands.is_python(named[0]) else None
    return named.index(script) if script is not None and script.endswith(".py") else 0


class Launcher(Backend):
    """A launcher. All methods are pure.

    Variables for a launcher in the job script, on every node: BAREBOAT_NODE (its number, from 0),
    BAREBOAT_NODES, BAREBOAT_HOST (its name), BAREBOAT_MASTER (the first node's address), BAREBOAT_PORT (a
    port that was free there), BAREBOAT_INTERFACE (the network interface to the first node). If started rank
    by rank also RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    """

    START: Start
    #: Whether each rank has output files of its own, logs/RANK.out and .err in the run's directory. A program
    #: started once per node writes them; for a program started rank by rank the job script does.
    KEEPS_OUTPUT = False
    #: Of a launcher of MPI programs, the rung of MPI's ladder that it represents.
    RUNG: Rung | None = None
    #: How the names of variables begin by which it numbers its ranks, besides RANK_NAMES.
    SETS: tuple[str, ...] = ()
    #: Whether its program would end the ranks when a signal for the run reaches it, and can be kept from it.
    HOLDS = False
    #: The transport of ranks without MPI and NCCL.
    TRANSPORT = "gloo"

    @abstractmethod
    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        """Decide how the launcher starts this job there, or why it cannot."""


#: The variables of ranks that are started one by one.
RANK_VARIABLES = (*RANK_NAMES, "GLOO_SOCKET_IFNAME")


#: A prelude. By default gloo uses the interface of the host's name, which may not resolve, or be loopback.
INTERFACE = """\
unset GLOO_SOCKET_IFNAME
[ -z "$BAREBOAT_INTERFACE" ] || GLOO_SOCKET_IFNAME=$BAREBOAT_INTERFACE
"""


def threads(job: Job) -> dict[str, str]:
    """By default each rank starts a thread per core, and the ranks compete for the cores."""
    return {"OMP_NUM_THREADS": str(job.topology.cpus_per_rank or 1)}
