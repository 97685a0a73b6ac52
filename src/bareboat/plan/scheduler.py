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
