"""srun: Slurm starts every rank itself, and tells it who it is by PMIx or PMI-2.

Documentation: https://slurm.schedmd.com/mpi_guide.html
"""

from __future__ import annotations

from bareboat.launchers import Launchable, Passed, Surroundings, by_mpi
from bareboat.model import Command, Job, Position, Refusal, Start, Word
from bareboat.mpi.ladder import Rung, Step

NAME = "srun"
POSITION = Position.OUTSIDE
START = Start.PROGRAM
KEEPS_OUTPUT = False
#: How a rank is numbered, in bash.
NAMES = {"rank": "${SLURM_PROCID:-0}", "local_rank": "${SLURM_LOCALID:-0}"}


def judge(job: Job, surroundings: Surroundings) -> Launchable | Refusal:
    if surroundings.scheduler != "slurm":
        return Refusal(
            "it is Slurm's, and the job is not Slurm's", remedy="bareboat submit --scheduler slurm"
        )
    return by_mpi.judge(Rung.DIRECT, NAME, job, surroundings)


def wrap(command: Command, job: Job, surroundings: Surroundings) -> Command:
    return by_mpi.wrap(by_mpi.step(Rung.DIRECT, NAME, job, surroundings), command, job)


def passed(job: Job) -> Passed:
    return by_mpi.passed()


def program(job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
    return words(by_mpi.step(Rung.DIRECT, NAME, job, surroundings), job)


def words(found: Step, job: Job) -> tuple[Word, ...]:
    """Those that start the ranks."""
    topology = job.topology
    return (
        "srun",
        f"--mpi={found.plugin}",
        f"--nodes={topology.nodes}",
        f"--ntasks={topology.world_size}",
        f"--ntasks-per-node={topology.ranks_per_node}",
        f"--cpus-per-task={topology.cpus_per_rank or 1}",  # since 22.05 srun does not take the job's own
        "--kill-on-bad-exit=1",
        "--label" if topology.world_size > 1 else "--unbuffered",
    )


def prelude(job: Job, surroundings: Surroundings) -> str:
    found = by_mpi.step(Rung.DIRECT, NAME, job, surroundings)
    return by_mpi.prelude(found, job, **NAMES)


def proof(job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
    return by_mpi.proof(job, surroundings)
