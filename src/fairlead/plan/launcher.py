"""Which launcher starts the ranks, and how it is composed with the engine."""

from __future__ import annotations

from fairlead import registry
from fairlead.engines import Container, Engine
from fairlead.errors import PlanError
from fairlead.launchers import Launchable, Launcher, Surroundings
from fairlead.model import Command, Decision, Image, Job, Rejected


def choose_launcher(job: Job, surroundings: Surroundings, decisions: list[Decision]) -> Launcher:
    rejected: list[Rejected] = []
    for name in [job.launcher] if job.launcher else registry.names("launchers"):
        launcher = registry.launcher(name)
        verdict = launcher.judge(job, surroundings)
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
    job: Job,
    image: Image | None,
    engine: Engine,
    launcher: Launcher,
    container: Container,
    around: Surroundings,
) -> Command:
    """What is started, once per node or once per rank: scheduler(engine(launcher(workload))) for launchers
    inside the container, and scheduler(launcher(engine(workload))) for those outside."""
    environment = {**(image.environment if image is not None else {}), **job.environment}
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if engine.CONTAINS and image is not None:
        environment["FAIRLEAD_IMAGE"] = image.digest
    command = Command(argv=job.command, environment=environment, workdir=job.workdir)
    # A launcher inside adds its own words to the command; one outside only what every rank is told, and its
    # own words (`Launcher.program`) stand in the job script, before those of the engine.
    return engine.wrap(launcher.wrap(command, job, around), container, around.site)
