"""The plan of a situation with one engine."""

from __future__ import annotations

from msgspec import UNSET, structs

from bareboat import commands
from bareboat.engines import Container, Enclosure, Engine, programs
from bareboat.launchers import SECRET, Launch, Passed, by_mpi
from bareboat.model import Command, Decision, Job, Plan, Requirement, Site, Variable
from bareboat.model.site import OWN_OF_NODES
from bareboat.plan import covering, environment, frameworks, sweep
from bareboat.plan.container import (
    SHARED_MOUNT,
    SHARED_STORE,
    SHARED_WORKDIR,
    bind_host_mpi,
    lies_under,
    make_container,
    mount_points,
    own_points,
    places,
    requirements,
)
from bareboat.plan.delivery import archive_needed, choose_delivery, on_the_node
from bareboat.plan.engine import engine_errors
from bareboat.plan.environment import check_size, choose_shims, is_own, settle
from bareboat.plan.fabric import choose_fabric
from bareboat.plan.gpus import choose_driver
from bareboat.plan.guard import choose_guard, filter_needed, front, hold
from bareboat.plan.kernel_cache import choose_kernel_cache
from bareboat.plan.launcher import choose_launcher, choose_watchdog, choose_world, compose, surroundings
from bareboat.plan.process import Workload, choose_process
from bareboat.plan.program import check_program, check_starters
from bareboat.plan.situation import EngineChoice, Situation
from bareboat.plan.warnings import (
    absent_modules,
    compiler_missing,
    site_warnings,
    unseen,
    unused_decisions,
    unused_warnings,
)
from bareboat_base.paths import lies_in

#: The shell of `attach`: bash where the image has it.
_SHELL = ("sh", "-c", "command -v bash > /dev/null && exec bash -i; exec sh -i")
#: A shell is not a rank.
_NO_LAUNCHER = Launch(reason="", passed=Passed(own=()))
#: Variables that describe the terminal of a program.
_TERMINAL = ("TERM", "COLORTERM")
_UNSAVED = "{} ends its container by a signal for the job: to save its state then, use another engine"


class EnginePlan:
    """The decisions that follow from an engine, in their order. Raises NoEngineError where another engine may
    work, PlanError where none can."""

    def __init__(self, situation: Situation, engine: Engine, enclosure: Enclosure) -> None:
        self._situation = situation
        self._choose_process(engine, enclosure)
        self._choose_launcher()
        self._choose_container()
        self._choose_settings()
        self._choose_delivery()

    def _choose_process(self, engine: Engine, enclosure: Enclosure) -> None:
        here = self._situation
        job, image, rootfs = here.job, here.image, here.rootfs
        if rootfs is not None and rootfs.absolute and enclosure.mount_points and not job.writable:
            enclosure = structs.replace(enclosure, relinked=True)
        with engine_errors():
            check_starters(here.code.program, engine)
            self._process, self._about_process = choose_process(job, image, here.runs_on, engine)
            gpu = choose_driver(job, image, rootfs, here.runs_on, engine, here.scheduler)
        self._choice = EngineChoice(engine=engine, enclosure=enclosure, gpu=gpu)
        check_size(job, image if engine.CONTAINS else None, self._process.argv)
        # Launchers get the command that runs, the image's or the job's; the plan keeps the job as written.
        self._resolved = structs.replace(job, command=self._process.argv)
        frameworks.refuse_starters(self._resolved, here.code)

    def _choose_launcher(self) -> None:
        here, engine, code = self._situation, self._choice.engine, self._situation.code
        around = surroundings(
            here.image, here.site, here.runs_on, here.scheduler, engine.NAME, contains=engine.CONTAINS,
            mpi_checks=here.mpi_checks,
        )  # fmt: skip
        self._launcher, self._launch, self._about_launcher = choose_launcher(self._resolved, code, around)
        self._executable, self._starts_warnings = check_program(
            here.job, code.program, engine, self._choice.gpu, here.scheduler, self._launch.host_mpi
        )

    def _choose_container(self) -> None:
        here, choice, launch = self._situation, self._choice, self._launch
        job = here.job
        self._bound, self._about_mpi = bind_host_mpi(launch.host_mpi, here.rootfs)
        with engine_errors():
            container, self._about_container = make_container(here, choice, self._bound)
        guard, self._about_guard = choose_guard(job, choice.engine, here.runs_on)
        self._front = front(guard, choice.engine, here.runs_on)
        self._program = hold(launch.program, self._launcher, here.runs_on)
        self._about_watchdog = choose_watchdog(job)
        self._settled = settle(self._resolved, launch.passed, self._launcher.NAME)
        self._fabric = choose_fabric(
            self._resolved, here.image, here.runs_on, choice.enclosure, self._launcher, container,
            host_mpi=launch.host_mpi,
        )  # fmt: skip
        starts = here.code.starter is not UNSET or commands.starter(self._resolved.command) is not None
        starts = starts or self._launcher.RUNG is not None
        of_job = environment.of_job(job, here.code, here.scheduler, starts_ranks=starts)
        shims, self._about_shims = choose_shims(job, here.image, here.site)
        self._container = structs.replace(
            container,
            guard=guard,
            seccomp=job.seccomp,
            inherits=bool(job.shim),
            passed=(*self._settled.passed, *choice.gpu.passed, *self._fabric.passed, *of_job),
            passed_prefixes=launch.passed.prefixes,
            given=(
                *(each for each in sweep.given(job) if not is_own(each[0], launch.passed)),
                *((name, Variable(name)) for name in (*sweep.variables(job), *job.environment_from)),
                *shims,
            ),
        )

    def _choose_settings(self) -> None:
        """Not part of the job: its launcher must get the job that was judged. Also on bare metal, because the
        arms of a study must not differ; but without settings for a site layer, which bare metal does not
        have."""
        here, engine, image = self._situation, self._choice.engine, self._situation.image
        has_mpi = image is not None and (engine.CONTAINS or image.site_layer is None)
        alone = by_mpi.singleton(image) if has_mpi and self._launcher.RUNG is None else ()
        self._about_settings = [
            Decision(subject="MPI singleton", choice=f"{each.name}={each.value}", reason=each.reason)
            for each in alone
        ]
        self._settings = {each.name: each.value or "" for each in alone}
        self._on_cpus = self._choice.gpu.driver is None and (engine.CONTAINS or not here.runs_on.gpus)
        for decision, values in frameworks.settings(here.job, image, on_cpus=self._on_cpus):
            self._about_settings.append(decision)
            self._settings |= values
        self._settings |= self._fabric.environment
        self._kernels = choose_kernel_cache(here.job, image, here.rootfs, self._choice, self._container)
        self._settings |= self._kernels.settings

    def _choose_delivery(self) -> None:
        here, container = self._situation, self._container
        self._delivery, self._about_delivery = choose_delivery(
            here.job, here.image, here.rootfs, container, here.runs_on, here.scheduler, self._choice.enclosure
        )
        container = self._kernels.shown_in(container)
        self._shown = container if self._delivery is UNSET else on_the_node(container, self._delivery)
        self._about_world = choose_world(here.job, self._launcher)

    def _composed(
        self, workload: Workload, within: Container | None = None, started: Launch | None = None
    ) -> Command:
        command = compose(
            self._resolved, self._situation.image, self._choice, workload, started or self._launch,
            within or self._shown, self._settings,
        )  # fmt: skip
        guard, modes = self._front
        return command if guard is None else structs.replace(command, argv=guard.start(command.argv, *modes))

    def _shell(self) -> Command:
        named = [name for name in _TERMINAL if name not in self._situation.job.environment]
        return self._composed(
            structs.replace(self._process, argv=_SHELL, own=0),
            structs.replace(self._container, passed=(*self._container.passed, *named)),
            _NO_LAUNCHER,
        )

    def plan(self, warnings: tuple[str, ...]) -> Plan:
        """All decisions. `warnings`: those that no engine changes."""
        here, choice, launch, container = self._situation, self._choice, self._launch, self._container
        job, image, scheduler = here.job, here.image, here.scheduler
        with engine_errors():
            command = self._composed(self._process)
        check = launch.mpi_check and structs.replace(self._process, argv=launch.mpi_check, own=0)
        points = mount_points(container, all_places=choice.enclosure.mount_points)
        own, inner = own_points(container, points)
        return Plan(
            job=job,
            image_digest=image.digest if image is not None and choice.engine.CONTAINS else None,
            engine=choice.engine.NAME,
            launcher=self._launcher.NAME,
            scheduler=scheduler.NAME,
            command=command,
            decisions=self._decisions(),
            warnings=(*warnings, *self._warnings()),
            requirements=self._requirements(),
            needs_flat=container.flat is not None,
            relinked=choice.enclosure.relinked,
            packs=None if container.packed is None else container.packed.rpartition(".")[2],
            mount_points=(*points, *places(container)),
            own_points=own,
            inner_points=inner,
            keeps_output=self._launcher.KEEPS_OUTPUT,
            secret=True if SECRET in launch.passed.names else UNSET,
            start=self._launcher.START,
            program=self._program,
            mpi_check=self._composed(check) if check else None,
            prelude=launch.prelude + self._fabric.prelude + self._settled.prelude,
            directives=scheduler.directives(job, here.site),
            executable=self._executable,
            shell=self._shell(),
            check_subject=launch.check_subject,
            notes=self._notes(),
            delivery=self._delivery,
            watches_world=True if self._about_world else UNSET,
            kernel_cache=self._kernels.cache,
            fabric=UNSET if self._fabric.watch is None else self._fabric.watch,
        )

    def _decisions(self) -> tuple[Decision, ...]:
        here, contains = self._situation, self._choice.engine.CONTAINS
        return (
            *self._about_process,
            self._about_launcher,
            *self._choice.gpu.decisions,
            *self._kernels.decisions,
            *self._about_mpi,
            *self._about_container,
            *self._about_guard,
            *self._about_shims,
            *self._about_watchdog,
            *self._settled.decisions,
            *self._fabric.decisions,
            *self._about_settings,
            *self._about_delivery,
            *self._about_world,
            *unused_decisions(here.job, contains=contains, is_local=here.scheduler.IS_LOCAL),
        )

    def _warnings(self) -> tuple[str, ...]:
        here, launch, engine = self._situation, self._launch, self._choice.engine
        job, image, code = here.job, here.image, here.code
        contained: tuple[str, ...] = ()
        if engine.CONTAINS:
            compiler = compiler_missing(job, image) if code.compiles else ()
            contained = (*covering.warnings(job), *compiler, *unseen(job, code))
        return (
            *self._choice.gpu.warnings,
            *_not_seen(job, here.site, here.node, at_once=here.scheduler.IS_LOCAL),
            *site_warnings(job, image, here.runs_on),
            *contained,
            *absent_modules(job, code),
            *unused_warnings(job, contains=self._choice.engine.CONTAINS),
            *sweep.warnings(job, code),
            *self._settled.warnings,
            *self._starts_warnings,
            *([_UNSAVED.format(engine.NAME)] if engine.ENDS_FIRST and not programs(here.runs_on) else []),
            *frameworks.warnings(self._resolved, image, code, on_cpus=self._on_cpus, launcher=self._launcher),
            *([launch.warning] if launch.warning else []),
        )

    def _requirements(self) -> tuple[Requirement, ...]:
        here, container = self._situation, self._container
        facts = here.runs_on.engine(self._choice.engine.NAME)
        at_once = here.scheduler.IS_LOCAL
        return (
            *requirements(here.job, here.image, container, facts, self._bound, at_once=at_once),
            *filter_needed(self._front[0], self._program),
            *archive_needed(self._delivery),
        )

    def _notes(self) -> tuple[str, ...]:
        here, compiles = self._situation, self._situation.code.compiles
        missing = self._choice.engine.CONTAINS and not compiles
        return (
            *((self._launch.note,) if self._launch.note else ()),
            *(compiler_missing(here.job, here.image) if missing else ()),
        )


def _not_seen(job: Job, site: Site, node: Site | None, *, at_once: bool) -> tuple[str, ...]:
    if at_once:
        return ()
    told = ("compute nodes not probed; assuming they match this machine: bareboat doctor --compute",)
    needed = [(mount.source, SHARED_MOUNT) for mount in job.mounts]
    if node is None:  # otherwise the job was refused
        needed.append((job.workdir or "", SHARED_WORKDIR))
        needed += [(each.path, SHARED_STORE) for each in site.file_systems if each.purpose == "store"]
    return (
        *(told if node is None else ()),
        *(
            f"nodes {'usually ' if node is None else ''}have a {own} of their own, without {path}: {remedy}"
            for path, remedy in needed
            for own in (OWN_OF_NODES if node is None else node.own)
            if lies_under(path, own) and not lies_in(path, site.home)  # a home in /tmp is shared
        ),
    )
