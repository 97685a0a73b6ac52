"""host-mpi: the MPI library of the host, bound into the image in place of the image's own (or of none), and
started by srun or by the host's mpirun, in the same way as any program of the host.

Every rank is in a container of its own. `bareboat.mpi.inject` defines what is bound.
"""

from __future__ import annotations

from bareboat.launchers import Launch, Launcher, Surroundings, by_mpi, mpirun, srun
from bareboat.model import Job, Refusal, Start
from bareboat.mpi.start_methods import Rung


class HostMpi(Launcher):
    NAME = "host-mpi"
    START = Start.PROGRAM
    RUNG = Rung.HOST_LIBRARY
    SETS = by_mpi.SETS

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        if not around.contains:
            return Refusal("without a container the host's MPI needs no binding", remedy="leave it out")
        found = by_mpi.judge(self.RUNG, self.NAME, job, around)
        if isinstance(found, Refusal):
            return found
        start = srun if found.plugin is not None else mpirun
        return by_mpi.launch_from_outside(found, job, around, start.words(found, job), **start.NAMES)
