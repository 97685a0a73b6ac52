"""image-mpirun: the image's own mpirun, inside the container, so that the host's MPI does not matter.

On several nodes it starts its daemons through bareboat.mpi.relay, which runs in the container of every node:
the image needs neither ssh nor srun, only its Python.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import structs

from bareboat.launchers import LET_SAVE, RANK_NAMES, SECRET, Launch, Launcher, Passed, Surroundings, by_mpi
from bareboat.model import Job, Refusal, Start, Variable, Word
from bareboat.mpi import authentication, relay, text
from bareboat.mpi.rules import Starter
from bareboat.mpi.start_methods import Rung, Step

_RELAY = text.program(authentication, relay)
#: mpirun returns one exit code for all ranks. This keeps each rank's own, and sets the names that others
#: read.
_RANK = (
    """\
trap : TERM INT HUP
RANK=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}
LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}}
[ -z "${BAREBOAT_MARK:-}" ] || BAREBOAT_RUN=$BAREBOAT_MARK
export RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE ${BAREBOAT_RUN+BAREBOAT_RUN}
"$@"
code=$?
[ -z "${BAREBOAT_RUN_DIR:-}" ] || echo "$RANK $code" >> "$BAREBOAT_RUN_DIR/exits.$RANK"
"""
    + LET_SAVE
    + 'exit "$code"\n'
)
#: Hydra, unlike the others, starts its ranks with the signals that wait for itself (`relay`).
_RELEASE = """\
import os, signal, sys
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
os.execvp(sys.argv[1], sys.argv[1:])
"""


class ImageMpirun(Launcher):
    NAME = "image-mpirun"
    START = Start.NODES
    RUNG = Rung.IMAGE_LAUNCHER
    SETS = by_mpi.SETS

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        if not by_mpi.has_python(around.image):
            return Refusal(
                "its ranks are started through a small Python program, and the image has no Python 3",
                remedy="install python3 in the image",
            )
        found = by_mpi.judge(self.RUNG, self.NAME, job, around)
        if isinstance(found, Refusal):
            return found
        topology = job.topology
        assert found.library is not None
        assert found.library.launcher is not None
        start = (found.library.launcher, *_options(found, job))
        check = by_mpi.mpi_check(job, around) or ()
        where: tuple[Word, ...] = ()
        if topology.nodes > 1:
            where = (
                "--node", Variable("BAREBOAT_NODE"),
                "--master", Variable("BAREBOAT_MASTER"), "--port", Variable("BAREBOAT_PORT"),
            )  # fmt: skip
        is_hydra = found.launch is not None and found.launch.starter is Starter.HYDRA
        released = (around.python, "-I", "-S", "-c", _RELEASE) if is_hydra else ()
        common = by_mpi.launch(found, job, around)
        own = tuple(name for name in RANK_NAMES if not name.startswith("MASTER_"))
        return structs.replace(
            common,
            argv=(
                around.python, "-c", _RELAY,
                "--nodes", str(topology.nodes), "--ranks", str(topology.ranks_per_node), *where,
                "--launcher", str(len(start)), "--check", str(len(check)),
                "--", *start, *check, *released, "/bin/sh", "-c", _RANK, "rank",
            ),
            environment={
                **common.environment,
                "WORLD_SIZE": str(topology.world_size),
                "LOCAL_WORLD_SIZE": str(topology.ranks_per_node),
            },
            passed=Passed((SECRET,) if topology.nodes > 1 else (), own=(*own, SECRET)),
        )  # fmt: skip


def _options(found: Step, job: Job) -> tuple[str, ...]:
    """Options for the number of ranks, their placement, and how mpirun reaches the other nodes. The relay
    replaces AGENT, HOSTS and NAMES."""
    topology = job.topology
    several = topology.nodes > 1
    way: tuple[str, ...]
    options: tuple[str, ...] = ()
    assert found.launch is not None
    match found.launch.starter:
        case Starter.ORTE:
            # Without an "ssh" it does not even start on one node.
            options = ("--mca", "plm", "rsh", "--mca", "plm_rsh_agent", "AGENT")
            way = ("--mca", "plm_rsh_no_tree_spawn", "1", "--leave-session-attached", "--host", "HOSTS")
        case Starter.PRRTE:
            way = ("--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", "AGENT",
                   "--prtemca", "plm_ssh_no_tree_spawn", "1",
                   "--leave-session-attached", "--host", "HOSTS")  # fmt: skip
        case Starter.HYDRA:
            way = ("-launcher", "ssh", "-launcher-exec", "AGENT", "-hosts", "NAMES")
        case Starter.SRUN:
            raise AssertionError("no image has an srun of its own")
        case _:
            assert_never(found.launch.starter)
    starter = found.launch.starter
    way = (*way, *by_mpi.daemons(starter)) if several else ()
    return (*options, *way, *by_mpi.ranks(starter, job))
