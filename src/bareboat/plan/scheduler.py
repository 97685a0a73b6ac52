"""Which scheduler runs the job, and whether it is available there."""

from __future__ import annotations

from bareboat import registry
from bareboat.model import Decision, Job, Site
from bareboat.schedulers import ASSUMED, Scheduler
from bareboat_base.errors import PlanError


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


def decisions(job: Job, node: Site, scheduler: Scheduler) -> tuple[Decision, ...]:
    """What the scheduler does for the job. `node` is one of the machines that the ranks run on."""
    return (_topology(job, node), *_notification(job, scheduler))


def _notification(job: Job, scheduler: Scheduler) -> tuple[Decision, ...]:
    """What happens when the run has ended."""
    if job.notify is None or (isinstance(job.notify, str) and scheduler.IS_LOCAL):
        return ()
    if isinstance(job.notify, str):
        choice, reason = f"mail from {scheduler.TITLE}", "notify names it; the site may not deliver mail"
        if job.notify != "mail":
            choice += f" to {job.notify}"
    else:
        where = "this machine" if scheduler.IS_LOCAL else "the first node"
        choice = " ".join(job.notify)
        reason = f"notify names it; it runs on {where}, outside of the container"
    return (Decision(subject="notification", choice=choice, reason=reason),)


def _topology(job: Job, node: Site) -> Decision:
    topology = job.topology
    nodes = "1 node" if topology.nodes == 1 else f"{topology.nodes} nodes"
    ranks = "1 rank" if topology.ranks_per_node == 1 else f"{topology.ranks_per_node} ranks"
    return Decision(
        subject="topology",
        choice=f"{nodes} x {ranks} = world size {topology.world_size}",
        reason=f"{node.hostname} has {node.cpus} CPUs and {len(node.gpus)} GPUs",
    )
