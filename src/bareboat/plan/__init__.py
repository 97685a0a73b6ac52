"""The planner: (job, image, site) -> Plan. A pure function: no disk, no process, no environment.

Known problems are reported here, with the reason and the command that fixes them.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, structs

from bareboat import registry
from bareboat.engines import ENV, Container, Enclosure, Engine
from bareboat.launchers import SECRET, Launch, Passed, Surroundings, by_mpi
from bareboat.model import (
    CodeFacts,
    Command,
    Decision,
    Executable,
    Image,
    Job,
    Plan,
    Rootfs,
    Site,
    Start,
    Variable,
)
from bareboat.mpi.checks import CheckResult
from bareboat.plan import covering, frameworks, sweep
from bareboat.plan.container import (
    SHARED_WORKDIR,
    lies_under,
    make_container,
    mount_points,
    own_points,
    places,
    requirements,
)
from bareboat.plan.delivery import archive_needed, choose_delivery, on_the_node
from bareboat.plan.engine import choose_engine, of_the_engine
from bareboat.plan.environment import check_size, is_own, settle
from bareboat.plan.fabric import choose_fabric
from bareboat.plan.gpus import choose_driver
from bareboat.plan.guard import choose_guard, filter_needed
from bareboat.plan.host_mpi import bind
from bareboat.plan.launcher import choose_launcher, choose_world, compose
from bareboat.plan.memory import choose_memory
from bareboat.plan.process import Workload, choose_process
from bareboat.plan.program import check_program, check_starters
from bareboat.plan.scheduler import choose_scheduler, notification_decision, topology_decision
from bareboat.plan.warnings import compiler_missing, image_warnings, site_warnings, unseen
from bareboat.plan.watchdog import choose_watchdog
from bareboat.schedulers import Scheduler
from bareboat_base import architectures
from bareboat_base.errors import PlanError
from bareboat_base.files.kinds import IN_MEMORY, common_name
from bareboat_base.paths import lies_in

#: The shell of `attach`: bash where the image has it.
_SHELL = ("sh", "-c", "command -v bash > /dev/null && exec bash -i; exec sh -i")
#: A shell is not a rank.
_NO_LAUNCHER = Launch(reason="", passed=Passed(own=()))
_NO_CODE = CodeFacts()
#: Directories that are local to each node.
_OWN_OF_NODES = ("/tmp", "/var/tmp", "/dev/shm", "/run")
#: Variables that describe the terminal of a program.
_TERMINAL = ("TERM", "COLORTERM")


def plan(
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    site: Site,
    *,
    node: Site | None = None,
    mpi_checks: tuple[CheckResult, ...] = (),
    program: Executable | None = None,
    code: CodeFacts = _NO_CODE,
) -> Plan:
    """Make all decisions, including the plans for a failed MPI check. `image` and `rootfs` are None for a job
    on bare metal without a capture. `site` is where the job is submitted, `node` one of the machines that run
    it if that is another one and was probed; `mpi_checks`: results of MPI checks there; `program`: the
    program of the job's command, if it was looked up; `code`: what its code shows.

    Raises PlanError when the job cannot run as requested.
    """
    made = _plan(job, image, rootfs, site, node=node, mpi_checks=mpi_checks, program=program, code=code)
    others: list[Plan] = []
    last, known = made, mpi_checks
    while last.check_subject is not None and last.start is Start.PROGRAM:
        failed = CheckResult(
            subject=last.check_subject, holds=False, said="it failed in this job", at="", run_id=""
        )
        known = (*known, failed)
        try:
            last = _plan(job, image, rootfs, site, node=node, mpi_checks=known, program=program, code=code)
        except PlanError:
            break
        launcher = registry.launcher(last.launcher)
        if launcher.RUNG is None and not launcher.REPLACES_MPI:
            break  # it would start N singletons
        if _shares_preparation(made, last):
            others.append(last)
    return msgspec.structs.replace(made, otherwise=tuple(others)) if others else made


def _shares_preparation(first: Plan, other: Plan) -> bool:
    """Whether the preparations for the first plan, in the store and on the nodes, also serve the other."""
    one, two = (
        (each.needs_flat, each.relinked, each.packs, each.mount_points, each.delivery)
        for each in (first, other)
    )
    return one == two and (first.delivery is UNSET or first.start is other.start)


def _plan(
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    site: Site,
    *,
    node: Site | None,
    mpi_checks: tuple[CheckResult, ...],
    program: Executable | None,
    code: CodeFacts,
) -> Plan:
    scheduler, about_scheduler = choose_scheduler(job, site)
    runs_on = node or site
    _refuse_unseen(job, site, runs_on)
    _refuse_in_memory(job, site, node, at_once=scheduler.IS_LOCAL)
    if image is not None and registry.contains(job.engine):
        _refuse_architecture(job, image, runs_on)
        covering.refuse(job)
    memory, about_memory = choose_memory(job, image, site, scheduler)
    decisions = [
        about_scheduler,
        topology_decision(job, runs_on),
        *notification_decision(job, scheduler),
        *about_memory,
        *sweep.decisions(job, site, scheduler),
    ]
    if image is not None and image.site_layer is not None and registry.contains(job.engine):
        from bareboat.plan import site_layer  # few jobs have one

        site_layer.check_image(job, image)
        decisions += site_layer.decisions(image)
    warnings = (*scheduler.warnings(job, site), *memory)
    about_engine, made = choose_engine(
        job,
        image,
        runs_on,
        lambda engine, enclosure: _under(
            engine,
            enclosure,
            job,
            image,
            rootfs,
            site,
            node,
            scheduler,
            warnings,
            mpi_checks,
            program,
            code,
        ),
    )
    return msgspec.structs.replace(made, decisions=(*decisions, about_engine, *made.decisions))


def _under(
    engine: Engine,
    enclosure: Enclosure,
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    site: Site,
    node: Site | None,
    scheduler: Scheduler,
    warnings: tuple[str, ...],
    mpi_checks: tuple[CheckResult, ...],
    program: Executable | None,
    code: CodeFacts,
) -> Plan:
    """The plan with this engine, and the decisions that follow from it. Raises Unfit where another engine may
    work, PlanError where none can."""
    runs_on = node or site
    if rootfs is not None and rootfs.absolute and enclosure.mount_points and not job.writable:
        enclosure = structs.replace(enclosure, relinked=True)
    with of_the_engine():
        check_starters(program, engine)
        process, about_process = choose_process(job, image, runs_on, engine)
        gpu = choose_driver(job, image, rootfs, runs_on, engine, scheduler)
    check_size(job, image if engine.CONTAINS else None, process.argv)
    # Launchers get the command that runs, the image's or the job's; the plan keeps the job as written.
    resolved = msgspec.structs.replace(job, command=process.argv)
    frameworks.refuse_starters(resolved, code)
    facts = site.scheduler(scheduler.NAME)
    around = Surroundings(
        site=runs_on,
        scheduler=scheduler.NAME,
        engine=engine.NAME,
        contains=engine.CONTAINS,
        at_once=scheduler.IS_LOCAL,
        in_slurm=scheduler.IN_SLURM,
        image=image,
        python=(image.python if image is not None else None) or "python3",
        mpi_plugins=facts.mpi_plugins if facts is not None else (),
        mpi_checks=mpi_checks,
    )
    launcher, launch, about_launcher = choose_launcher(resolved, around)
    executable, starts_warnings = check_program(job, program, engine, gpu, scheduler, launch.host_mpi)
    bound, about_mpi = bind(launch.host_mpi, rootfs)
    with of_the_engine():
        container, about_container = make_container(
            job, image, rootfs, runs_on, engine, enclosure, gpu, bound
        )
    guard, about_guard = choose_guard(job, engine, runs_on)
    py_spy, about_watchdog = choose_watchdog(job, site)
    settled = settle(resolved, launch.passed, launcher.NAME)
    fabric = choose_fabric(resolved, image, runs_on, enclosure, launcher, container, host_mpi=launch.host_mpi)
    container = structs.replace(
        container,
        by_env=program is not None and not program.known and ENV not in program.lacks,
        guard=guard,
        seccomp=job.seccomp is UNSET,
        passed=(*settled.passed, *gpu.passed, *fabric.passed),
        passed_prefixes=launch.passed.prefixes,
        given=(
            *(each for each in sweep.given(job) if not is_own(each[0], launch.passed)),
            *((name, Variable(name)) for name in (*sweep.variables(job), *job.environment_from)),
        ),
    )
    # Not part of the job: its launcher must get the job that was judged. Also on bare metal, because the arms
    # of a study must not differ; but without settings for a site layer, which bare metal does not have.
    has_mpi = image is not None and (engine.CONTAINS or image.site_layer is None)
    alone = by_mpi.singleton(image) if has_mpi and launcher.RUNG is None else ()
    about_settings = [
        Decision(subject="MPI singleton", choice=f"{each.name}={each.value}", reason=each.reason)
        for each in alone
    ]
    settings = {each.name: each.value or "" for each in alone}
    on_cpus = gpu.driver is None and (engine.CONTAINS or not runs_on.gpus)
    for decision, values in frameworks.settings(job, image, on_cpus=on_cpus):
        about_settings.append(decision)
        settings |= values
    settings |= fabric.environment

    delivery, about_delivery = choose_delivery(job, image, rootfs, container, runs_on, scheduler, enclosure)
    shown = container if delivery is UNSET else on_the_node(container, delivery)

    def composed(workload: Workload, within: Container = shown, started: Launch = launch) -> Command:
        return compose(resolved, workload, image, engine, enclosure, started, within, gpu, settings)

    with of_the_engine():
        command = composed(process)
    mpi_check = None
    if launch.mpi_check is not None:
        mpi_check = composed(structs.replace(process, argv=launch.mpi_check, own=0))
    named = [name for name in _TERMINAL if name not in job.environment]
    shell = composed(
        structs.replace(process, argv=_SHELL, own=0),
        structs.replace(container, passed=(*container.passed, *named)),
        _NO_LAUNCHER,
    )
    about_world = choose_world(job, launcher)
    points = mount_points(container, all_places=enclosure.mount_points)
    own, inner = own_points(container, points)
    return Plan(
        job=job,
        image_digest=image.digest if image is not None and engine.CONTAINS else None,
        engine=engine.NAME,
        launcher=launcher.NAME,
        scheduler=scheduler.NAME,
        command=command,
        decisions=(
            *about_process,
            about_launcher,
            *gpu.decisions,
            *about_mpi,
            *about_container,
            *about_guard,
            *about_watchdog,
            *settled.decisions,
            *fabric.decisions,
            *about_settings,
            *about_delivery,
            *about_world,
        ),
        warnings=(
            *warnings,
            *gpu.warnings,
            *_not_seen(job, site, node, at_once=scheduler.IS_LOCAL),
            *site_warnings(job, image, runs_on),
            *(
                (*covering.warnings(job), *image_warnings(job, image, code), *unseen(job, code))
                if engine.CONTAINS
                else ()
            ),
            *sweep.warnings(job),
            *fabric.warnings,
            *settled.warnings,
            *starts_warnings,
            *frameworks.warnings(resolved, image, code, on_cpus=on_cpus, launcher=launcher.NAME),
            *([launch.warning] if launch.warning else []),
        ),
        requirements=(
            *requirements(
                job, image, container, runs_on.engine(engine.NAME), bound, at_once=scheduler.IS_LOCAL
            ),
            *filter_needed(guard),
            *archive_needed(delivery),
        ),
        needs_flat=container.flat is not None,
        relinked=enclosure.relinked,
        packs=None if container.packed is None else container.packed.rpartition(".")[2],
        mount_points=(*points, *places(container)),
        own_points=own,
        inner_points=inner,
        keeps_output=launcher.KEEPS_OUTPUT,
        secret=True if SECRET in launch.passed.names else UNSET,
        start=launcher.START,
        program=launch.program,
        mpi_check=mpi_check,
        prelude=launch.prelude + fabric.prelude + settled.prelude,
        directives=scheduler.directives(job, site),
        executable=executable,
        shell=shell,
        check_subject=launch.check_subject,
        notes=(
            *((launch.note,) if launch.note else ()),
            *(compiler_missing(job, image) if engine.CONTAINS and not code.compiles else ()),
        ),
        delivery=delivery,
        py_spy=py_spy,
        watches_world=True if about_world else UNSET,
        fabric=UNSET if fabric.watch is None else fabric.watch,
    )


def _refuse_unseen(job: Job, site: Site, node: Site) -> None:
    """Raise PlanError where the nodes do not see paths that the job needs."""
    stores = [system.path for system in site.file_systems if system.purpose == "store"]
    for path in node.unseen:
        for needed, what, remedy in (
            *((store, "the store", "--store DIR on a file system that all nodes share") for store in stores),
            (job.workdir, "the working directory", "move it to a file system that all nodes share"),
        ):
            if needed is None:  # the image's directory
                continue
            if lies_under(needed, path) or needed == path:
                raise PlanError(
                    f"the compute nodes do not see {path}, where {what} is",
                    context=f"as seen by bareboat doctor --compute on {node.hostname}, {node.probed_at}",
                    remedy=remedy,
                )


def _refuse_in_memory(job: Job, site: Site, node: Site | None, *, at_once: bool) -> None:
    """Raise PlanError for a store in one machine's memory and several nodes; delivery reads it too."""
    if at_once or job.topology.nodes == 1:
        return
    # A probed compute node sees the store; otherwise the job was refused.
    systems = () if node is not None else site.file_systems
    store = next((system for system in systems if system.purpose == "store"), None)
    if store is not None and common_name(store.kind) in IN_MEMORY:
        raise PlanError(
            f"{job.topology.nodes} nodes cannot read the store {store.path}: it is in the memory of this "
            f"machine ({store.kind})",
            context="nor can delivery copy from it to the nodes: they fetch the copy from the store",
            remedy="--store DIR on a file system that all nodes share",
        )


#: Platform in OCI's terms -> other platforms that its machines run.
_ALSO_RUNS = {"amd64": ("386",), "arm64": ("arm",)}


def _refuse_architecture(job: Job, image: Image, node: Site) -> None:
    built_for, wanted = image.architecture, architectures.oci(node.architecture)
    if built_for in ("", "unknown", node.architecture, wanted, *_ALSO_RUNS.get(wanted, ())):
        return
    name = "the captured environment" if job.image == "capture" else f"the image {job.image}"
    raise PlanError(
        f"{name} is built for {built_for}, and {node.hostname} is {wanted}",
        context=f"platforms of the image in the store: linux/{built_for}",
        remedy=f"capture it on a machine like {node.hostname}"
        if job.image == "capture"
        else f"bareboat image pull --arch {node.architecture} {image.reference or job.image}",
    )


def _not_seen(job: Job, site: Site, node: Site | None, *, at_once: bool) -> tuple[str, ...]:
    if at_once or node is not None:
        return ()
    told = ("compute nodes not probed; assuming they match this machine: bareboat doctor --compute",)
    here = job.workdir
    # A home in /tmp belongs to a test site, whose nodes share it.
    if here is None or lies_in(here, site.home) or not any(lies_in(here, own) for own in _OWN_OF_NODES):
        return told
    return (
        *told,
        f"nodes usually have a /{here.split('/')[1]} of their own, without {here}: {SHARED_WORKDIR}",
    )
