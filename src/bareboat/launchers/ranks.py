"""ranks: the job script starts every rank and sets the variables that PyTorch's env:// reads.

It needs only bash; the image needs neither a launcher nor MPI. The variables are those of torchrun:
https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization
"""

from __future__ import annotations

from bareboat.launchers import (
    INTERFACE,
    RANK_VARIABLES,
    Launch,
    Launcher,
    Passed,
    Surroundings,
    by_mpi,
    threads,
)
from bareboat.model import Job, Refusal, Start


class Ranks(Launcher):
    NAME = "ranks"
    START = Start.RANKS
    KEEPS_OUTPUT = True

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        refusal = by_mpi.alone(self.NAME, job, around)
        if refusal is not None:
            return refusal
        return Launch(
            reason="the job script starts each rank and sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, "
            "MASTER_PORT",
            environment=threads(job),
            passed=Passed(RANK_VARIABLES),
            prelude=INTERFACE,
            warning=by_mpi.unjudged(around.image, job),
        )
