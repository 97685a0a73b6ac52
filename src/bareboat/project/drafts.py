"""How many ranks, cores and GPUs a job file starts with, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from bareboat.project.findings import Draft, Findings
from bareboat_base.printable import counted

#: A first run on CPUs has at most so many ranks.
_FIRST_RANKS = 4


def drafts(found: Findings) -> Iterator[Draft]:
    """Job files for the project, the preferred ones first: with GPUs where the script can use them, else on
    CPUs. Whether the site can run one is for the planner to decide."""
    local = len(found.site.gpus)
    if found.world.uses_gpus and local:
        yield _sized(found, gpus=local, cpus=found.site.cpus, where="this machine")
    partition = found.partition
    if found.world.uses_gpus and not local and partition is not None and partition.gpus_per_node:
        assert found.scheduler is not None
        sized = _sized(
            found,
            gpus=partition.gpus_per_node,
            cpus=partition.cpus_per_node or found.site.cpus,
            where=f"a node of partition {partition.name}",
        )
        reason = f"{found.site.hostname} has no GPU, and the nodes of partition {partition.name} have"
        yield structs.replace(sized, scheduler=found.scheduler.name, why={**sized.why, "scheduler": reason})
    cpus = found.site.cpus
    if partition is not None and partition.cpus_per_node:
        cpus = min(cpus, partition.cpus_per_node)
    yield _sized(found, gpus=0, cpus=cpus, where="this machine")


def with_launchers(draft: Draft, found: Findings) -> Iterator[Draft]:
    """The draft with each launcher that fits the script, for environments in which the planner would choose
    another."""
    for name in found.world.launchers:
        reason = f"{found.world.reason}; the environment has other frameworks, too"
        yield structs.replace(draft, launcher=name, why={**draft.why, "launcher": reason})


def _sized(found: Findings, *, gpus: int, cpus: int, where: str) -> Draft:
    """`gpus`, `cpus`: of one node."""
    world = found.world
    why: dict[str, str] = {}
    devices = counted(gpus, "GPU")
    if not world.launchers:
        ranks, why["ranks"] = 1, world.reason
    elif world.per_node and gpus:
        ranks, why["ranks"] = 1, f"{world.reason}; one rank uses all GPUs of its node"
    elif gpus:
        ranks, why["ranks"] = gpus, f"{world.reason}: one rank per GPU; {where} has {devices}"
    elif world.per_core:
        ranks = min(cpus, _FIRST_RANKS)
        why["ranks"] = f"{world.reason}: up to one rank per core; {where} has {cpus} CPUs"
    else:
        ranks = min(2, max(1, cpus))
        why["ranks"] = f"{world.reason}: 2 ranks are enough to try it"
    each = 0
    if gpus:
        each = gpus if ranks == 1 and world.per_node else max(1, gpus // ranks)
        if ranks == 1 and not world.per_node and not world.launchers:
            each = 1
        why["gpus"] = f"{where} has {devices}"
    return Draft(
        ranks=ranks,
        cpus=max(1, cpus // ranks) if world.launchers or world.uses_gpus else None,
        gpus=each,
        why={**why, "cpus": f"{where} has {cpus} CPUs"},
    )
