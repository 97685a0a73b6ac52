"""single: the command itself, once."""

from __future__ import annotations

from fairlead.launchers import Launchable, NotLaunchable
from fairlead.model import Command, Image, Position, Topology

NAME = "single"
POSITION = Position.INSIDE
RANK_LOG = None


def judge(command: tuple[str, ...], topology: Topology, image: Image | None) -> Launchable | NotLaunchable:
    if topology.world_size > 1:
        return NotLaunchable(
            f"it starts one process, and the topology asks for {topology.world_size}",
            remedy="set ranks_per_node = 1, or leave the launcher to the planner",
        )
    return Launchable("one process needs no launcher")


def wrap(command: Command, topology: Topology, python: str) -> Command:
    return command
