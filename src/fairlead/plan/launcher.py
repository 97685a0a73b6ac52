"""Which launcher starts the ranks, and how it is composed with the engine."""

from __future__ import annotations

from fairlead import registry
from fairlead.engines import Container, Engine
from fairlead.errors import PlanError
from fairlead.launchers import Launchable, Launcher
from fairlead.model import Command, Decision, Image, Job, Position, Rejected, Site


def choose_launcher(job: Job, image: Image | None, decisions: list[Decision]) -> Launcher:
    rejected: list[Rejected] = []
    for name in [job.launcher] if job.launcher else registry.names("launchers"):
        launcher = registry.launcher(name)
        verdict = launcher.judge(job.command, job.topology, image)
        if isinstance(verdict, Launchable):
            decisions.append(
                Decision(
                    subject="launcher",
                    choice=f"{name}, {launcher.POSITION.value}",
                    reason=("asked for; " if job.launcher else "") + verdict.reason,
                    rejected=tuple(rejected),
                )
            )
            return launcher
        rejected.append(Rejected(choice=name, reason=verdict.reason, remedy=verdict.remedy))
    raise PlanError(
        f"no launcher can start {' '.join(job.command)!r} as {job.topology.world_size} ranks",
        context="\n".join(f"{r.choice}: {r.reason}" for r in rejected),
        remedy=next((r.remedy for r in reversed(rejected) if r.remedy), "fairlead doctor"),
    )


def compose(
    job: Job, image: Image | None, site: Site, engine: Engine, launcher: Launcher, container: Container
) -> Command:
    """scheduler(launcher(engine(workload))) for launchers outside the container,
    scheduler(engine(launcher(workload))) for those inside."""
    environment = {**(image.environment if image is not None else {}), **job.environment}
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if engine.CONTAINS and image is not None:
        environment["FAIRLEAD_IMAGE"] = image.digest
    command = Command(argv=job.command, environment=environment, workdir=job.workdir)
    python = (image.python if image is not None else None) or "python3"
    if launcher.POSITION is Position.INSIDE:
        return engine.wrap(launcher.wrap(command, job.topology, python), container, site)
    return launcher.wrap(engine.wrap(command, container, site), job.topology, python)
