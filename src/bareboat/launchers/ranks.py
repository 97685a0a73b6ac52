"""ranks: the job script starts every rank by itself and tells it its names, as PyTorch's env:// reads them.

Nothing but bash is needed, in the image neither a launcher nor MPI. What it names is what torchrun names:
https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization
"""

from __future__ import annotations

import msgspec

from bareboat.launchers import INTERFACE, RANK_VARIABLES, Launchable, Passed, Surroundings, by_mpi, threads
from bareboat.model import Command, Job, Position, Refusal, Start, Where, Word

NAME = "ranks"
POSITION = Position.OUTSIDE
START = Start.RANKS
KEEPS_OUTPUT = True


def judge(job: Job, surroundings: Surroundings) -> Launchable | Refusal:
    refusal = by_mpi.alone(NAME, job, surroundings)
    if refusal is not None:
        return refusal
    return Launchable(
        "the job script starts each rank and tells it RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
        warning=by_mpi.unjudged(surroundings.image, job),
    )


def wrap(command: Command, job: Job, surroundings: Surroundings) -> Command:
    return msgspec.structs.replace(
        command, environment={**threads(job), **command.environment}, where=Where.RANK
    )


def passed(job: Job) -> Passed:
    return Passed(RANK_VARIABLES)


def program(job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
    return ()


def prelude(job: Job, surroundings: Surroundings) -> str:
    return INTERFACE


def proof(job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
    return None
