"""Grid Engine's queues: what its tools show of their limits, and jobs that exceed all of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from bareboat.model import Job, Partition, Refusal, SchedulerFacts
from bareboat.schedulers.requests import clock, cpus_per_node
from bareboat.schedulers.tool_output import each_line, number, number_or_none


def hosts_of(instances: str) -> dict[str, set[str]]:
    """The hosts of each queue, from the lines QUEUE@HOST of `qselect`."""
    found: dict[str, set[str]] = {}
    for name, host in re.findall(r"(?m)^([\w.-]{1,255})@([\w.-]{1,255})$", instances):
        found.setdefault(name, set()).add(host)
    return found


def limits_of_queues(shown: str, hosts: Mapping[str, Collection[str]]) -> dict[str, Partition]:
    """The limits from `qconf -sq QUEUE,…`: the largest of all hosts, in values such as 4,[c1=8]. `hosts`: of
    each queue."""
    found = {}
    for paragraph in re.split(r"(?m)^qname\s+", shown.replace("\\\n", ""))[1:]:
        name = (paragraph.split(maxsplit=1) or [""])[0]
        times = [seconds(text) for text in _values(paragraph, "h_rt")]
        longest = max(times, default=float("inf"))
        found[name] = Partition(
            name=name,
            nodes=len(hosts[name]) if name in hosts else None,
            cpus_per_node=max((number_or_none(text) or 0 for text in _values(paragraph, "slots")), default=0)
            or None,
            max_time_s=None if longest == float("inf") else int(longest),
        )
    return found


def _values(paragraph: str, name: str) -> list[str]:
    """The values of a queue's attribute: of all hosts, and of some."""
    line = re.search(rf"(?m)^{name}\s+(\S.*)$", paragraph)
    words = line[1].split(",") if line is not None else []
    return [word.strip().removesuffix("]").rpartition("=")[2] for word in words]


def queues_of(
    names: Sequence[str], counts: str, limits: dict[str, Partition], remarks: list[str]
) -> tuple[Partition, ...]:
    """`qstat -g c`: CLUSTER QUEUE, CQLOAD, USED, RES, AVAIL, TOTAL, aoACDS, cdsuE, counted in slots."""
    slots: dict[str, tuple[int, int]] = {}

    def read(line: str) -> None:
        words = line.split()
        if line[0] != "-" and words[:2] != ["CLUSTER", "QUEUE"]:
            slots[words[-8]] = (number(words[-3]), number(words[-1]))

    each_line("qstat", counts, read, remarks)
    return tuple(
        msgspec.structs.replace(
            limits.get(name) or Partition(name=name),
            up=name not in slots or slots[name][0] > slots[name][1],
        )
        for name in names
    )


def too_much(job: Job, facts: SchedulerFacts) -> Refusal | None:
    """What all queues together do not have: a job without a queue may use several."""
    hosts = number_or_none(facts.settings.get("hosts", ""))
    if hosts is not None and job.topology.nodes > hosts:
        return Refusal(
            f"the job requires {job.topology.nodes} nodes; the queues of this cluster have {hosts}",
            f"set nodes = {hosts} or fewer under [topology]",
        )
    queues = facts.partitions
    slots = [queue.cpus_per_node for queue in queues if queue.cpus_per_node is not None]
    if slots and len(slots) == len(queues) and cpus_per_node(job) > sum(slots):
        return Refusal(
            f"the job requires {cpus_per_node(job)} CPUs per node; the queues of this cluster have "
            f"{sum(slots)} slots on a node",
            "set fewer ranks_per_node or cpus_per_rank",
        )
    times = [queue.max_time_s for queue in queues if queue.max_time_s is not None]
    if times and len(times) == len(queues) and (job.walltime_s or 0) > max(times):
        return Refusal(
            f"the job requires {clock(job.walltime_s or 0)}; the queues of this cluster allow "
            f"{clock(max(times))}",
            f"set walltime_s = {max(times)} or less",
        )
    return None


def seconds(text: str) -> float:
    """Seconds, or H:M:S; infinite for anything else."""
    found = 0.0
    for part in text.split(":"):
        seconds = number_or_none(part)
        if seconds is None:
            return float("inf")
        found = found * 60 + seconds
    return found


def size(text: str) -> int:
    """Grid Engine's sizes: 300M, 1.5G, 4.980MB, 0.000B; lower-case suffixes are powers of 1000. 0 for other
    text."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{0,6})?)\s*([kKmMgGtT]?)B?", text.strip())
    if found is None:
        return 0
    letter = found[2]
    unit = (1024 if letter.isupper() else 1000) ** (" KMGT".index(letter.upper() or " "))
    return int(float(found[1]) * unit)
