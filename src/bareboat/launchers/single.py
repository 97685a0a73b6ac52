"""single: the command itself, once."""

from __future__ import annotations

from bareboat.launchers import Launch, Launcher, Passed, Surroundings
from bareboat.model import Job, Refusal, Start

_PRELUDE = "[ -t 1 ] || unset TERM COLORTERM # bash sets TERM, also without a terminal\n"


class Single(Launcher):
    NAME = "single"
    START = Start.NODES

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        if job.topology.world_size > 1:
            return Refusal(
                f"it starts one process, and the topology asks for {job.topology.world_size}",
                remedy="set nodes = 1 and ranks_per_node = 1, or leave the launcher to the planner",
            )
        return Launch(
            reason="one process needs no launcher",
            passed=Passed(own=(), names=("TERM", "COLORTERM") if around.at_once else ()),
            prelude=_PRELUDE if around.at_once else "",
        )
