"""Schedulers: ways to get nodes. One module each, satisfying `Scheduler`."""

from __future__ import annotations

from typing import Protocol

from fairlead.model import Site, Topology


class Scheduler(Protocol):
    """A module of `fairlead.schedulers`. All of it is pure."""

    NAME: str

    def objection(self, topology: Topology, site: Site) -> tuple[str, str] | None:
        """Why the topology cannot be had here, with the remedy; None when it can."""
        ...

    def warnings(self, topology: Topology, site: Site) -> tuple[str, ...]:
        """What the user should know although the job can run."""
        ...
