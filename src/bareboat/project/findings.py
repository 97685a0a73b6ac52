"""What is known of a project and its site when the job file is written."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bareboat.model import Image, Partition, SchedulerFacts, Site
from bareboat.project.code import Code
from bareboat.project.surroundings import Surroundings
from bareboat.project.world import World


class Findings(Struct, frozen=True, kw_only=True):
    """`workdir`: the project's directory as the job file names it; None: the job file's own directory.
    `extra_path`: directories of local packages that Python does not search by itself. `program`: the ELF
    file of the project that the command starts, as the job file names it."""

    command: tuple[str, ...]
    script: str | None
    code: Code
    world: World
    around: Surroundings
    image: Image
    site: Site
    workdir: str | None = None
    extra_path: tuple[str, ...] = ()
    program: str | None = None

    @property
    def scheduler(self) -> SchedulerFacts | None:
        return next((facts for facts in self.site.schedulers if facts.works), None)

    @property
    def partition(self) -> Partition | None:
        """The default partition of the site's scheduler, or its first."""
        if self.scheduler is None:
            return None
        return self.scheduler.partition(None) or next(iter(self.scheduler.partitions), None)


class Draft(Struct, frozen=True, kw_only=True):
    """The choices of a job file. The values of `why` are reasons, by key."""

    ranks: int = 1
    cpus: int | None = None
    gpus: int = 0
    launcher: str | None = None
    scheduler: str | None = None
    why: dict[str, str]


class Drafted(Struct, frozen=True, kw_only=True):
    """A job file or a recipe, with a line and warnings for the user, and facts for programs."""

    text: str
    summary: str
    warnings: tuple[str, ...]
    facts: dict[str, Any]
