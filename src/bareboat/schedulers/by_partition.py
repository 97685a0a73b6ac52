"""What can be known before a job is queued, from what a scheduler says of its partitions and accounts.

Every scheduler with `SchedulerFacts` asks this; what the facts do not tell is not objected to.
"""

from __future__ import annotations

from msgspec import UNSET

from bareboat.model import Job, Partition, Refusal, SchedulerFacts, Site
from bareboat.schedulers import clock, cpus_per_node, gpus_per_node

#: Among the facts' settings: so many elements may an array job have.
MAX_ARRAY = "max_array"


def objection(
    name: str, job: Job, site: Site, *, word: str = "partition", needs_default: bool = True
) -> Refusal | None:
    """`word`: what the scheduler calls a partition. `needs_default`: a job without one must find a
    default."""
    facts = site.scheduler(name)
    if facts is None:
        return Refusal(
            f"there is no {name} on this machine", "log in to the cluster, or run it here: bareboat run"
        )
    if not facts.works:
        return Refusal(facts.detail, "ask again when it answers: bareboat doctor")
    partition = None
    if facts.partitions:
        partition = facts.partition(job.scheduling.partition)
        names = ", ".join(p.name for p in facts.partitions)
        if job.scheduling.partition is None and partition is None and needs_default:
            return Refusal(f"the cluster has no default {word}", f"--partition NAME, one of: {names}")
        if partition is None and job.scheduling.partition is not None:
            return Refusal(
                f"there is no {word} {job.scheduling.partition!r}", f"--partition NAME, one of: {names}"
            )
        if partition is not None and not partition.up:
            others = (
                ", ".join(p.name for p in facts.partitions if p.up) or "none is up: ask the administrator"
            )
            return Refusal(
                f"the {word} {partition.name} takes no jobs now", f"--partition NAME, one of: {others}"
            )
    account = job.scheduling.account
    if facts.accounts is not None and account is not None and account not in facts.accounts:
        known = ", ".join(facts.accounts) or "none: ask the administrator for an account"
        return Refusal(
            f"{site.user} cannot charge the account {account!r}", f"--account NAME, one of: {known}"
        )
    if facts.accounts == () and facts.settings.get("accounts") == "enforced":
        return Refusal(
            f"{site.user} has no account on this cluster, or it has expired",
            "ask the administrator for an account",
        )
    most = facts.settings.get(MAX_ARRAY, "")
    if job.sweep is not UNSET and most.isdigit() and len(job.sweep.points) > int(most):
        return Refusal(
            f"the sweep has {len(job.sweep.points)} points, and an array job of this cluster at most {most}",
            f"write sweeps of {most} points or fewer under [sweep], and hand them over one by one",
        )
    return None if partition is None else _too_much(job, partition, facts, word)


def _too_much(job: Job, partition: Partition, facts: SchedulerFacts, word: str) -> Refusal | None:
    """What the job asks for that the partition can never give."""
    where = f"the {word} {partition.name}"
    topology = job.topology
    most = min((n for n in (partition.nodes, partition.max_nodes) if n is not None), default=None)
    if most is not None and topology.nodes > most:
        return Refusal(
            f"the job asks for {topology.nodes} nodes, and {where} gives {most}" + _elsewhere(job, facts),
            f"set nodes = {most} or fewer under [topology], or take another {word}",
        )
    for asked, limit, what, mend in (
        (cpus_per_node(job), partition.cpus_per_node, "CPUs", "fewer ranks_per_node or cpus_per_rank"),
        (gpus_per_node(job), partition.gpus_per_node, "GPUs", "fewer ranks_per_node or gpus_per_rank"),
        (job.walltime_s, partition.max_time_s, "seconds", f"walltime_s = {partition.max_time_s} or less"),
        (
            job.scheduling.mem_per_node_bytes,
            partition.mem_per_node_bytes,
            "bytes of memory",
            f"mem_per_node_bytes = {partition.mem_per_node_bytes} or less",
        ),
    ):
        if asked is None or limit is None or asked <= limit:
            continue
        if what == "seconds":
            return Refusal(
                f"the job asks for {clock(asked)}, and {where} gives {clock(limit)}", f"set {mend}"
            )
        return Refusal(
            f"the job asks for {asked} {what} on a node, and a node of {where} has {limit}", f"set {mend}"
        )
    if partition.accounts and job.scheduling.account and job.scheduling.account not in partition.accounts:
        return Refusal(
            f"{where} is not for the account {job.scheduling.account!r}",
            f"--account NAME, one of: {', '.join(partition.accounts)}",
        )
    return None


def _elsewhere(job: Job, facts: SchedulerFacts) -> str:
    """Where there would be enough nodes."""
    wide = [
        p.name
        for p in facts.partitions
        if p.up
        and (p.nodes or 0) >= job.topology.nodes
        and (p.max_nodes is None or p.max_nodes >= job.topology.nodes)
    ]
    return f"; {', '.join(wide)} has as many" if wide else ""


def warnings(name: str, job: Job, site: Site) -> tuple[str, ...]:
    facts = site.scheduler(name)
    found = list(facts.remarks) if facts is not None else []
    if job.walltime_s is None:
        partition = facts.partition(job.scheduling.partition) if facts is not None else None
        limit = (
            f", which is at most {clock(partition.max_time_s)}" if partition and partition.max_time_s else ""
        )
        found.append(f"no walltime_s: the job gets the site's default{limit}, and waits longer for its turn")
    return tuple(found)
