"""Detect impossible jobs before submission, from a scheduler's facts about partitions and accounts.

Used by every scheduler with `SchedulerFacts`. Unknown facts raise no objection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bareboat.model import Job, Partition, Refusal, SchedulerFacts, Site
from bareboat.schedulers.requests import clock, cpus_per_node, gpus_per_node
from bareboat_base import units
from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest

if TYPE_CHECKING:
    from bareboat.schedulers import Scheduler

#: The setting with the maximum number of elements of an array job.
MAX_ARRAY = "max_array"
#: The setting with the partitions that exist, but not for this user's groups, separated by commas.
CLOSED = "closed partitions"

#: What Slurm's and Grid Engine's tools print on a machine that belongs to no cluster.
_NO_CONFIGURATION = expression(
    r"Could not establish a configuration source|unable to read qmaster name|[Pp]lease set the environment "
    r"variable SGE_ROOT"
)


def ask_again(scheduler: Scheduler, detail: str) -> str:
    """The remedy for a scheduler that does not answer. `detail`: the output of its tool."""
    if _NO_CONFIGURATION.search(detail) is not None:
        return f"run this on a login node of the cluster: {scheduler.TITLE} has no configuration here"
    slow = "export BAREBOAT_TOOL_TIMEOUT_S=60"
    return f"{scheduler.PING}; if it is slow: {slow}" if scheduler.PING else f"if it is slow: {slow}"


def objection(scheduler: Scheduler, job: Job, site: Site) -> Refusal | None:
    name, word = scheduler.NAME, scheduler.PARTITION
    facts = site.scheduler(name)
    if facts is None:
        return Refusal(
            f"{name} is not installed on this machine", "log in to the cluster, or run it here: bareboat run"
        )
    if not facts.works:
        return Refusal(facts.detail, ask_again(scheduler, facts.detail))
    partition = None
    if facts.partitions:
        asked, why = job.scheduling.partition, ""
        partition = facts.partition(asked)
        offered = [each.name for each in facts.partitions if _is_open(each, job, facts)]
        if asked is None and partition is None and scheduler.NEEDS_PARTITION:
            why = f"the cluster has no default {word}"
        elif asked is not None and partition is None and asked in facts.settings.get(CLOSED, "").split(","):
            why = f"the {word} {asked} is not open to {site.user}'s groups"
        elif asked is not None and partition is None:
            near = nearest(asked, offered)
            guess = f"; did you mean {near!r}?" if near else ""
            why = f"{word} {asked!r} does not exist on this cluster{guess}"
        elif partition is not None and not partition.up:
            why = f"the {word} {partition.name} does not accept jobs now"
        if why:
            names = ", ".join(offered) or "none is up; contact the administrator"
            return Refusal(why, f"--partition NAME, one of: {names}")
    account = job.scheduling.account
    if facts.accounts is not None and account is not None and account not in facts.accounts:
        known = ", ".join(facts.accounts) or "none: ask the administrator for an account"
        near = nearest(account, facts.accounts)
        return Refusal(
            f"{site.user} cannot charge the account {account!r}"
            + (f"; did you mean {near!r}?" if near else ""),
            f"--account NAME, one of: {known}",
        )
    if facts.accounts == () and facts.settings.get("accounts") == "enforced":
        return Refusal(
            f"{site.user} has no account on this cluster, or it has expired",
            "ask the administrator for an account",
        )
    most = facts.settings.get(MAX_ARRAY, "")
    if job.sweep is not None and most.isdigit() and len(job.sweep.points) > int(most):
        return Refusal(
            f"the sweep has {len(job.sweep.points)} points; an array job on this cluster has at most {most}",
            f"write sweeps of {most} points or fewer under [sweep], and submit them one by one",
        )
    return None if partition is None else _too_much(job, partition, facts, word)


def _is_open(partition: Partition, job: Job, facts: SchedulerFacts) -> bool:
    """Whether a partition starts jobs, and of this user with the job's account."""
    accounts = facts.accounts if job.scheduling.account is None else (job.scheduling.account,)
    admits = not partition.accounts or accounts is None or not {*accounts}.isdisjoint(partition.accounts)
    return partition.up and partition.starts and admits


def _too_much(job: Job, partition: Partition, facts: SchedulerFacts, word: str) -> Refusal | None:
    """A request that the partition can never satisfy, with the remedy."""
    where = f"the {word} {partition.name}"
    nodes, walltime_s = job.topology.nodes, job.walltime_s
    most = min((n for n in (partition.nodes, partition.max_nodes) if n is not None), default=None)
    if most is not None and nodes > most:
        return Refusal(
            f"the job requires {nodes} nodes; {where} allows {most}" + _elsewhere(job, facts),
            f"set nodes = {most} or fewer under [topology], or use another {word}",
        )
    cpus, gpus, memory = cpus_per_node(job), gpus_per_node(job), job.scheduling.mem_per_node_bytes or 0
    for asked, of_node, of_job, what, keys in (
        (cpus, partition.cpus_per_node, partition.job_cpus, "CPUs", "ranks_per_node or cpus_per_rank"),
        (gpus, partition.gpus_per_node, partition.job_gpus, "GPUs", "ranks_per_node or gpus_per_rank"),
        (memory, partition.mem_per_node_bytes, partition.job_mem_bytes, "of memory", "mem_per_node_bytes"),
    ):
        unit, table = ("bytes", "scheduling") if what == "of memory" else ("", "topology")
        for number, limit, per, reduced in (
            (asked, of_node, "per node", f"{keys} under [{table}]"),
            (asked * nodes, of_job, "per job", f"nodes under [topology], or {keys} under [{table}]"),
        ):
            if limit is not None and number > limit:
                needs, has = (f"{units.written(n, unit) if unit else n} {what}" for n in (number, limit))
                return Refusal(
                    f"the job requires {needs} {per}; {where} has {has}",
                    f"reduce {reduced}, to at most {has} {per}",
                )
    least, longest = partition.min_time_s, partition.max_time_s
    if longest is not None and walltime_s is not None and walltime_s > longest:
        return Refusal(
            f"the job requires {clock(walltime_s)}; {where} allows {clock(longest)}",
            f"set walltime_s = {longest} or less",
        )
    if least is not None and walltime_s is not None and walltime_s < least:
        return Refusal(
            f"the job requires {clock(walltime_s)}; {where} takes jobs of {clock(least)} or more",
            f"set walltime_s = {least} or more, or use another {word}",
        )
    if partition.accounts and job.scheduling.account and job.scheduling.account not in partition.accounts:
        return Refusal(
            f"{where} does not accept the account {job.scheduling.account!r}",
            f"--account NAME, one of: {', '.join(partition.accounts)}",
        )
    return None


def _elsewhere(job: Job, facts: SchedulerFacts) -> str:
    """The partitions with enough nodes, as text."""
    nodes = job.topology.nodes
    open_to_job = (each for each in facts.partitions if _is_open(each, job, facts))
    wide = [p.name for p in open_to_job if (p.nodes or 0) >= nodes and (p.max_nodes or nodes) >= nodes]
    return f"; enough nodes in: {', '.join(wide)}" if wide else ""


def warnings(scheduler: Scheduler, job: Job, site: Site) -> tuple[str, ...]:
    facts = site.scheduler(scheduler.NAME)
    found = list(facts.remarks) if facts is not None else []
    partition = facts.partition(job.scheduling.partition) if facts is not None else None
    if partition is not None and partition.up and not partition.starts:
        found.append(
            f"the {scheduler.PARTITION} {partition.name} is stopped: the job waits until an administrator "
            "starts it"
        )
    if scheduler.AFTER_FAILURE and job.scheduling.after:
        found.append(f"{scheduler.TITLE} starts the job also when the one that it waits for failed")
    if job.walltime_s is None:
        limit = (
            f", which is at most {clock(partition.max_time_s)}" if partition and partition.max_time_s else ""
        )
        found.append(
            f"no walltime_s: the job gets the site's default{limit}, and may wait longer in the queue"
        )
    return tuple(found)
