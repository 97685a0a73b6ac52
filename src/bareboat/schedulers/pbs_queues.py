"""PBS's queues and nodes: their limits, as its tools show them. Pure."""

from __future__ import annotations

import re

from bareboat.model import Partition
from bareboat.schedulers import by_partition
from bareboat.schedulers.tool_output import name_in, number_or_none, odd_lines, pairs


def queues(text: str, server: str, nodes: str, remarks: list[str]) -> tuple[Partition, ...]:
    """The queues of `qstat -Q -f`: paragraphs of `name = value` below `Queue: NAME`. `server`: `qstat -B -f`,
    which names the default queue; `nodes`: `pbsnodes -a`, whose largest node limits a job on all queues. A
    queue that only routes has the limits of none."""
    found = []
    default = pairs(server, " = ").get("default_queue", "")
    most = _largest_node(nodes)
    before, *paragraphs = re.split(r"(?m)^Queue:?\s*", text)
    odd = [line for line in before.splitlines() if line.strip()]
    for paragraph in paragraphs:
        first, _, rest = paragraph.partition("\n")
        values = pairs(rest, " = ")
        try:
            name = name_in(first.strip())
        except ValueError:
            odd.append(first)
            continue
        found.append(
            Partition(
                name=name,
                default=name == default,
                up=values.get("enabled") == "True",
                starts=values.get("started") == "True",
                nodes=most.get("nodes"),
                cpus_per_node=most.get("ncpus"),
                gpus_per_node=most.get("ngpus"),
                mem_per_node_bytes=most.get("mem"),
                max_nodes=number_or_none(values.get("resources_max.nodect", "")),
                max_time_s=_seconds(values.get("resources_max.walltime", "")),
                min_time_s=_seconds(values.get("resources_min.walltime", "")),
                job_cpus=number_or_none(values.get("resources_max.ncpus", "")),
                job_gpus=number_or_none(values.get("resources_max.ngpus", "")),
                job_mem_bytes=_size(values.get("resources_max.mem", "")),
            )
        )
    remarks += odd_lines("qstat", odd)
    return tuple(found)


def _seconds(text: str) -> int | None:
    """Seconds, or H:M:S, whose first parts may be missing; None for other text."""
    if re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,2}){0,2}", text) is None:
        return None
    found = 0
    for part in text.split(":"):
        found = found * 60 + int(part)
    return found


def settings(server: str) -> dict[str, str]:
    """The facts of `qstat -B -f` that jobs depend on."""
    values = pairs(server, " = ")
    most = values.get("max_array_size", "")
    return {by_partition.MAX_ARRAY: most} if most else {}


def _largest_node(text: str) -> dict[str, int]:
    """The number of nodes of `pbsnodes -a`, and the largest value of each resource that all of them have."""
    nodes = [pairs(paragraph, " = ") for paragraph in re.split(r"\n(?=\S)", text) if " = " in paragraph]
    most = {"nodes": len(nodes)} if nodes else {}
    for name in ("ncpus", "ngpus", "mem"):
        values = [node.get(f"resources_available.{name}") for node in nodes]
        sizes = [size for value in values if value and (size := _size(value)) is not None]
        if nodes and len(sizes) == len(nodes):
            most[name] = max(sizes)
    return most


def _size(text: str) -> int | None:
    """A count, or a size with a unit in bytes: "4", "8gb"."""
    parts = re.fullmatch(r"([0-9]{1,15})(?:([kmgt]?)b)?", text.strip().lower())
    return None if parts is None else int(parts[1]) * 1024 ** " kmgt".index(parts[2] or " ")
