"""host-mpi: the MPI library of the host, bound into the image in place of the image's own (or of none), and
started by srun or by the host's mpirun, which speak to it as to any program of the host.

Every rank is in a container of its own. What is bound is said by `bareboat.mpi.inject`.
"""

from __future__ import annotations

from bareboat.launchers import Launchable, Passed, Surroundings, by_mpi, mpirun, srun
from bareboat.model import Command, Job, Position, Refusal, Start, Word
from bareboat.mpi.ladder import Rung, Step

NAME = "host-mpi"
POSITION = Position.OUTSIDE
START = Start.PROGRAM
KEEPS_OUTPUT = False


def judge(job: Job, surroundings: Surroundings) -> Launchable | Refusal:
    if surroundings.engine == "native":
        return Refusal("without a container the host's MPI needs no binding", remedy="leave it out")
    return by_mpi.judge(Rung.HOST_LIBRARY, NAME, job, surroundings)


def wrap(command: Command, job: Job, surroundings: Surroundings) -> Command:
    return by_mpi.wrap(_step(job, surroundings), command, job)


def passed(job: Job) -> Passed:
    return by_mpi.passed()


def program(job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
    found = _step(job, surroundings)
    return srun.words(found, job) if found.plugin is not None else mpirun.words(found, job)


def prelude(job: Job, surroundings: Surroundings) -> str:
    found = _step(job, surroundings)
    return by_mpi.prelude(found, job, **(srun.NAMES if found.plugin is not None else mpirun.NAMES))


def proof(job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
    return by_mpi.proof(job, surroundings, _step(job, surroundings))


def _step(job: Job, surroundings: Surroundings) -> Step:
    return by_mpi.step(Rung.HOST_LIBRARY, NAME, job, surroundings)
