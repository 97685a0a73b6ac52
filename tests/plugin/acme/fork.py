"""acme-fork: the job script starts each rank, which finds its number as ACME_RANK."""

from __future__ import annotations

from bareboat.launchers import RANK_VARIABLES, Launch, Launcher, Passed, Surroundings, threads
from bareboat.model import Job, Refusal, Start


class Fork(Launcher):
    NAME = "acme-fork"
    START = Start.RANKS
    KEEPS_OUTPUT = True

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        if job.launcher != self.NAME:
            return Refusal("it is used only when requested", remedy=f'launcher = "{self.NAME}"')
        return Launch(
            reason="the job script starts each rank",
            environment={**threads(job), "ACME": around.scheduler},
            passed=Passed((*RANK_VARIABLES, "ACME_RANK")),
            prelude="ACME_RANK=$RANK\n",
        )
