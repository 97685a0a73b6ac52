"""mpirun: the host's launcher starts every rank, each in a container of its own, and connects to the image's
library by PMIx (OpenMPI) or PMI (MPICH).

Documentation: https://docs.open-mpi.org/en/main/man-openmpi/man1/mpirun.1.html
https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md
"""

from __future__ import annotations

from bareboat.launchers import Launch, Launcher, Surroundings, by_mpi
from bareboat.model import Job, Refusal, Start, Word
from bareboat.mpi.rules import Starter
from bareboat.mpi.start_methods import Rung, Step

#: Bash expressions of a rank's numbers.
NAMES = {
    "rank": "${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}",
    "local_rank": "${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}}",
}


class Mpirun(Launcher):
    NAME = "mpirun"
    START = Start.PROGRAM
    RUNG = Rung.HOST_LAUNCHER
    SETS = by_mpi.SETS
    HOLDS = True

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        found = by_mpi.judge(self.RUNG, self.NAME, job, around)
        if isinstance(found, Refusal):
            return found
        return by_mpi.launch_from_outside(found, job, around, words(found, job), **NAMES)


def words(found: Step, job: Job) -> tuple[Word, ...]:
    """The words that start the ranks."""
    assert found.host is not None
    assert found.host.launcher is not None
    assert found.launch is not None
    match found.launch.starter:
        case Starter.PRRTE:
            # The containers share /dev/shm with the node, but not /tmp: OpenMPI 5 aborts when it does not
            # find PRRTE's description of the node's CPUs there.
            here: tuple[str, ...] = ("--prtemca", "prte_tmpdir_base", "/dev/shm")
            before: tuple[str, ...] = ()
        case Starter.HYDRA:
            # It starts one process on each node by srun, which would use the job's number instead.
            before, here = ("env", "-u", "SLURM_NTASKS_PER_NODE"), ()
        case _:
            before, here = (), ()
    if job.topology.nodes > 1:
        here += by_mpi.daemons(found.launch.starter)
    return (*before, found.host.launcher, *here, *by_mpi.ranks(found.launch.starter, job))
