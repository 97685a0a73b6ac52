"""Which launcher starts the ranks, and how it is composed with the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from bareboat import registry
from bareboat.engines import Container
from bareboat.gpu import inject
from bareboat.launchers import Launch, Launcher, Surroundings, by_mpi
from bareboat.model import CodeFacts, Command, Decision, Image, Job, Refusal, Rejected, Site, Start
from bareboat.mpi.checks import CheckResult
from bareboat.mpi.start_methods import needs_mpi
from bareboat.plan import sweep
from bareboat.plan.environment import is_own
from bareboat.plan.frameworks import variable_read
from bareboat.plan.process import IDENTITY, Workload
from bareboat.plan.situation import EngineChoice
from bareboat.schedulers import Scheduler
from bareboat_base.errors import PlanError
from bareboat_base.paths import DEFAULT_PATH

#: Variables of an image that its command does not get: the identity, and what only other tools read.
_NOT_TAKEN = (*IDENTITY, *inject.IGNORED)

#: Variables for the ranks of a watched job: one that buffers its output seems silent.
_WATCHED = {"PYTHONUNBUFFERED": "1"}


def surroundings(
    image: Image | None,
    site: Site,
    node: Site,
    scheduler: Scheduler,
    engine: str,
    *,
    contains: bool = True,
    mpi_checks: tuple[CheckResult, ...] = (),
) -> Surroundings:
    """`site`: where the job is submitted; `node`: a machine that the ranks run on."""
    facts = site.scheduler(scheduler.NAME)
    return Surroundings(
        site=node,
        scheduler=scheduler.NAME,
        engine=engine,
        contains=contains,
        at_once=scheduler.IS_LOCAL,
        in_slurm=scheduler.IN_SLURM,
        image=image,
        python=(image.python if image is not None else None) or "python3",
        mpi_plugins=facts.mpi_plugins if facts is not None else (),
        mpi_checks=mpi_checks,
    )


def choose_launcher(job: Job, code: CodeFacts, around: Surroundings) -> tuple[Launcher, Launch, Decision]:
    """The first that can start the job: of those that set the rank variables that its code reads, as if the
    job named them; then of all."""
    rejected: list[Rejected] = []
    names = [job.launcher] if job.launcher else registry.names("launchers")
    read = _read(names, code, around) if code.rank_variables and job.topology.world_size > 1 else {}
    for name in sorted(names, key=lambda name: name not in read):
        launcher = registry.launcher(name)
        named = msgspec.structs.replace(job, launcher=name) if name in read else job
        verdict = _linked(launcher, job, around) or launcher.judge(named, around)
        if isinstance(verdict, Launch):
            place = "inside" if launcher.START is Start.NODES else "outside"
            decision = Decision(
                subject="launcher",
                choice=f"{name}, {place} the container" if around.contains else name,
                reason=("asked for; " if job.launcher else read.get(name, "")) + verdict.reason,
                rejected=tuple(rejected),
            )
            return launcher, verdict, decision
        rejected.append(Rejected(choice=name, reason=verdict.reason, remedy=verdict.remedy))
    raise PlanError(
        f"no launcher can start {' '.join(job.command)!r} as {job.topology.world_size} ranks",
        context="\n".join(f"{r.choice}: {r.reason}" for r in rejected),
        remedy=next((r.remedy for r in reversed(rejected) if r.remedy), "bareboat doctor"),
    )


def _read(names: Iterable[str], code: CodeFacts, around: Surroundings) -> dict[str, str]:
    """Launchers that set a rank variable that the code reads, with that; of MPI, if the image uses it."""
    return {
        name: f"{read}; "
        for name, each in ((name, registry.launcher(name)) for name in names)
        if (read := variable_read(each, code)) and (each.RUNG is not None or not needs_mpi(around.image))
    }


def _linked(launcher: Launcher, job: Job, around: Surroundings) -> Refusal | None:
    """Why a program that is linked to an MPI is not started rank by rank, whatever else the image has."""
    program = around.image.program if around.image is not None else None
    if launcher.START is not Start.RANKS or program is None or not program.mpi:
        return None
    return by_mpi.alone(launcher.NAME, job, around)


def choose_world(job: Job, launcher: Launcher) -> tuple[Decision, ...]:
    """Whether the job script checks that the ranks are connected; () if not. The script does not know the
    ranks that the image's own mpirun starts, and these run the MPI check."""
    size = job.topology.world_size
    if size == 1 or (launcher.RUNG is not None and launcher.START is Start.NODES):
        return ()
    return (
        Decision(
            subject="world",
            choice=f"the connections between the {size} ranks are watched",
            reason="ranks that do not find each other exit with code 0; the script warns about them",
        ),
    )


def choose_watchdog(job: Job) -> tuple[Decision, ...]:
    """Whether the job is watched."""
    if not job.scheduling.watchdog_s:
        return ()
    return (
        Decision(
            subject="watchdog",
            choice=f"{job.scheduling.watchdog_s} s",
            reason="asked for: the run ends with exit code 71 when no rank prints or reports anything",
        ),
    )


def compose(
    job: Job,
    image: Image | None,
    choice: EngineChoice,
    process: Workload,
    launch: Launch,
    container: Container,
    settings: Mapping[str, str],
) -> Command:
    """The command that is started, once per node or once per rank: scheduler(engine(launcher(workload))) for
    launchers inside the container, and scheduler(launcher(engine(workload))) for those outside. `settings`:
    variables that override the launcher's and not the job's."""
    own = sweep.fixed_environment(job)
    command = Command(
        argv=sweep.words(process.argv, process.own, job),
        environment={**settings, **{name: own[name] for name in own if not is_own(name, launch.passed)}},
        workdir=process.workdir,
    )
    # A launcher inside adds its own words to the command; one outside only the variables of every rank, and
    # the job script has its words (`Launch.program`) before those of the engine.
    launched = launch.start(command)
    # The launcher's variables override the image's ENV, and the job's override both.
    own = image.environment if image is not None else {}
    environment = {
        "PATH": DEFAULT_PATH,
        **{name: value for name, value in own.items() if name not in _NOT_TAKEN},
    }
    environment |= {**(_WATCHED if job.scheduling.watchdog_s else {}), **launched.environment}
    if choice.gpu.driver is not None:
        environment = inject.environment(environment, choice.gpu.driver, choice.gpu.compat)
    if choice.engine.CONTAINS and image is not None:
        environment["BAREBOAT_IMAGE"] = image.digest
    return choice.enclosure.wrap(msgspec.structs.replace(launched, environment=environment), container)
