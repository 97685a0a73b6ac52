"""What a plan is made for, and the engine that the plan is made with."""

from __future__ import annotations

from msgspec import Struct

from bareboat.engines import Enclosure, Engine
from bareboat.model import CodeFacts, Image, Job, Rootfs, Site
from bareboat.mpi.checks import CheckResult
from bareboat.plan.gpus import Gpu
from bareboat.schedulers import Scheduler


class Situation(Struct, frozen=True, kw_only=True):
    """A job with its image, and where it runs. `image` and `rootfs` are None for a job on bare metal without
    a capture. `site`: where the job is submitted; `node`: one of the machines that run it if that is another
    one and was probed; `mpi_checks`: results of MPI checks there."""

    job: Job
    image: Image | None
    rootfs: Rootfs | None
    site: Site
    node: Site | None
    scheduler: Scheduler
    mpi_checks: tuple[CheckResult, ...]
    code: CodeFacts

    @property
    def runs_on(self) -> Site:
        """A machine that the ranks run on, as far as known."""
        return self.node or self.site


class EngineChoice(Struct, frozen=True, kw_only=True):
    """An engine with what it made of the situation."""

    engine: Engine
    enclosure: Enclosure
    gpu: Gpu
