"""single: the command itself, once."""

from __future__ import annotations

from bareboat.launchers import Launchable, Passed, Surroundings
from bareboat.model import Command, Job, Position, Refusal, Start, Word

NAME = "single"
POSITION = Position.INSIDE
START = Start.NODES
KEEPS_OUTPUT = False


def judge(job: Job, surroundings: Surroundings) -> Launchable | Refusal:
    if job.topology.world_size > 1:
        return Refusal(
            f"it starts one process, and the topology asks for {job.topology.world_size}",
            remedy="set nodes = 1 and ranks_per_node = 1, or leave the launcher to the planner",
        )
    return Launchable("one process needs no launcher")


def wrap(command: Command, job: Job, surroundings: Surroundings) -> Command:
    return command


def passed(job: Job) -> Passed:
    return Passed(own=(), names=("TERM", "COLORTERM") if job.scheduler in (None, "local") else ())


def program(job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
    return ()


def prelude(job: Job, surroundings: Surroundings) -> str:
    if surroundings.scheduler != "local":
        return ""
    return "[ -t 1 ] || unset TERM COLORTERM # bash sets TERM, also without a terminal\n"


def proof(job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
    return None
