"""The planner: (job, image, site) -> Plan. A pure function: no disk, no process, no environment.

Known problems are reported here, with the reason and the command that fixes them.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from bareboat import registry
from bareboat.model import CodeFacts, Decision, Image, Job, Plan, Rootfs, Site, Start
from bareboat.mpi.checks import CheckResult
from bareboat.plan import covering, sweep
from bareboat.plan.container import NO_MODULES, SHARED_STORE, SHARED_WORKDIR
from bareboat.plan.engine import choose_engine
from bareboat.plan.engine_plan import EnginePlan
from bareboat.plan.situation import Situation
from bareboat.schedulers import ASSUMED, Scheduler
from bareboat_base import architectures
from bareboat_base.errors import PlanError, UsageError
from bareboat_base.files.kinds import IN_MEMORY, common_name
from bareboat_base.paths import lies_in

_NO_CODE = CodeFacts()


def plan(
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    site: Site,
    *,
    node: Site | None = None,
    mpi_checks: tuple[CheckResult, ...] = (),
    code: CodeFacts = _NO_CODE,
) -> Plan:
    """Make all decisions, including the plans for a failed MPI check. `image` and `rootfs` are None for a job
    on bare metal without a capture. `site` is where the job is submitted, `node` one of the machines that run
    it if that is another one and was probed; `mpi_checks`: results of MPI checks there; `code`: what the
    job's program and code show.

    Raises PlanError when the job cannot run as requested.
    """
    scheduler, about_scheduler = choose_scheduler(job, site)
    situation = Situation(
        job=job, image=image, rootfs=rootfs, site=site, node=node, scheduler=scheduler,
        mpi_checks=mpi_checks, code=code,
    )  # fmt: skip
    made = _plan(situation, about_scheduler)
    others: list[Plan] = []
    last = made
    while last.check_subject is not None and last.start is Start.PROGRAM:
        failed = CheckResult(
            subject=last.check_subject, holds=False, said="it failed in this job", at="", run_id=""
        )
        situation = msgspec.structs.replace(situation, mpi_checks=(*situation.mpi_checks, failed))
        try:
            last = _plan(situation, about_scheduler)
        except PlanError:
            break
        if registry.launcher(last.launcher).RUNG is None:
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


def _plan(situation: Situation, about_scheduler: Decision) -> Plan:
    job, image, site, scheduler = situation.job, situation.image, situation.site, situation.scheduler
    runs_on = situation.runs_on
    _check_warning(job)
    _refuse_unseen(job, site, runs_on)
    _refuse_in_memory(job, site, situation.node, at_once=scheduler.IS_LOCAL)
    if image is not None and registry.contains(job.engine):
        _refuse_architecture(job, image, runs_on)
        covering.refuse(job)
    decisions = [
        about_scheduler,
        topology(job, runs_on),
        *sweep.decisions(job, site, scheduler),
    ]
    if image is not None and image.site_layer is not None and registry.contains(job.engine):
        from bareboat.plan import site_layer  # few jobs have one

        site_layer.check_image(job, image)
        decisions += site_layer.decisions(image)
    warnings = scheduler.warnings(job, site)
    about_engine, made = choose_engine(
        job,
        image,
        runs_on,
        lambda engine, enclosure: EnginePlan(situation, engine, enclosure).plan(warnings),
    )
    return msgspec.structs.replace(made, decisions=(*decisions, about_engine, *made.decisions))


def _check_warning(job: Job) -> None:
    warning_s = job.scheduling.warning_s
    if warning_s and (job.walltime_s is None or warning_s >= job.walltime_s):
        has = "the job has none" if job.walltime_s is None else f"that is {job.walltime_s}"
        raise UsageError(
            f"scheduling.warning_s is {warning_s}: it must be less than walltime_s, and {has}",
            key="scheduling.warning_s",
            remedy=f"set walltime_s = {max(3600, 2 * warning_s)}, or warning_s = 0 under [scheduling]",
        )


def _refuse_unseen(job: Job, site: Site, node: Site) -> None:
    """Raise PlanError where the nodes do not have the paths or the command `module` that the job needs."""
    seen = f"as seen by bareboat doctor --compute on {node.hostname}, {node.probed_at}"
    if job.modules and node.lacks_modules:
        why = 'the compute nodes do not have the command "module"'
        raise PlanError(why, context=seen, key="modules", remedy=NO_MODULES)
    stores = [system.path for system in site.file_systems if system.purpose == "store"]
    needs = [(store, "the store", SHARED_STORE) for store in stores]
    if job.workdir is not None:  # otherwise the image's directory
        needs.append((job.workdir, "the working directory", SHARED_WORKDIR))
    for path in (*node.unseen, *node.own):
        for needed, what, remedy in needs:
            if path in node.own and (needed in stores or lies_in(needed, site.home)):
                continue  # looked at itself
            if lies_in(needed, path):
                whose = "this machine's " if path in node.own else ""
                raise PlanError(
                    f"the compute nodes do not see {whose}{path}, where {what} is",
                    context=seen,
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
            remedy=SHARED_STORE,
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


def choose_scheduler(job: Job, site: Site) -> tuple[Scheduler, Decision]:
    """The requested scheduler, or this machine. `site` is where the job is submitted."""
    name = job.scheduler or registry.HERE
    scheduler = registry.scheduler(name)
    objection = scheduler.objection(job, site)
    if objection is not None:
        message, _, output = objection.reason.partition("\n")
        raise PlanError(message.rstrip(":"), context=output, remedy=objection.remedy, key=objection.key)
    reason = "this machine runs it at once"
    facts = site.scheduler(name)
    if facts is not None and ASSUMED in facts.settings:
        reason = "not on this machine; its facts are assumed"
    elif facts is not None:
        partition = facts.partition(job.scheduling.partition)
        reason = f"{name} {facts.version} is on this machine" + (
            f"; {scheduler.PARTITION} {partition.name}" if partition else ""
        )
    # Without a request, plan and submit use the first.
    if job.scheduler and not (site.schedulers and facts is site.schedulers[0] and facts.works):
        reason = f"asked for; {reason}"
    if scheduler.UNTESTED:
        reason += f"; untested: {scheduler.UNTESTED}"
    return scheduler, Decision(subject="scheduler", choice=name, reason=reason)


def topology(job: Job, node: Site) -> Decision:
    """How many ranks run where. `node` is one of the machines that the ranks run on."""
    topology = job.topology
    nodes = "1 node" if topology.nodes == 1 else f"{topology.nodes} nodes"
    ranks = "1 rank" if topology.ranks_per_node == 1 else f"{topology.ranks_per_node} ranks"
    return Decision(
        subject="topology",
        choice=f"{nodes} x {ranks} = world size {topology.world_size}",
        reason=f"{node.hostname} has {node.cpus} CPUs and {len(node.gpus)} GPUs",
    )
