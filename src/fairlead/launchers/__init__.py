"""Launchers: ways to start the ranks of a job. One module each, satisfying `Launcher`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fairlead.model import Command, Image, Position, Topology


@dataclass(frozen=True, slots=True)
class Launchable:
    """The launcher can start this job. `reason` says how."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotLaunchable:
    """It cannot, and this is why."""

    reason: str
    remedy: str = ""


class Launcher(Protocol):
    """A module of `fairlead.launchers`. All of it is pure."""

    NAME: str
    POSITION: Position
    #: Where a rank's output lies under the run's folder, a shell pattern with `$rank`; None: not kept.
    RANK_LOG: str | None

    def judge(
        self, command: tuple[str, ...], topology: Topology, image: Image | None
    ) -> Launchable | NotLaunchable:
        """Whether the launcher can start this command in this topology."""
        ...

    def wrap(self, command: Command, topology: Topology, python: str) -> Command:
        """The command that starts the ranks. `python` is the interpreter of the environment."""
        ...
