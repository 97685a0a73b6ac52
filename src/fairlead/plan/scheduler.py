"""Which scheduler runs the job, and whether it can be had there."""

from __future__ import annotations

from fairlead import registry
from fairlead.errors import PlanError
from fairlead.model import Decision, Job, Site


def choose_scheduler(job: Job, site: Site, decisions: list[Decision]) -> str:
    name = job.scheduler or "local"
    objection = registry.scheduler(name).objection(job.topology, site)
    if objection is not None:
        raise PlanError(objection[0], remedy=objection[1])
    topology = job.topology
    decisions.append(
        Decision(
            subject="scheduler",
            choice=name,
            reason="asked for" if job.scheduler else "this machine runs it at once",
        )
    )
    decisions.append(
        Decision(
            subject="topology",
            choice=f"{topology.nodes} node x {topology.ranks_per_node} ranks = "
            f"world size {topology.world_size}",
            reason=f"{site.hostname} has {site.cpus} CPUs and {len(site.gpus)} GPUs",
        )
    )
    return name
