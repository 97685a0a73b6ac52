"""local: this machine, now."""

from __future__ import annotations

from fairlead.model import Site, Topology

NAME = "local"


def objection(topology: Topology, site: Site) -> tuple[str, str] | None:
    if topology.nodes > 1:
        return (
            f"the topology asks for {topology.nodes} nodes, and this machine is one",
            "set nodes = 1 under [topology]",
        )
    if topology.cpus_per_rank is not None:
        needed = topology.cpus_per_rank * topology.ranks_per_node
        if needed > site.cpus:
            return (
                f"{topology.ranks_per_node} ranks with {topology.cpus_per_rank} CPUs each need {needed}, "
                f"and {site.hostname} has {site.cpus}",
                _fewer_cpus(topology.ranks_per_node, topology.cpus_per_rank, site.cpus),
            )
    gpus = topology.gpus_per_rank * topology.ranks_per_node
    if gpus > len(site.gpus):
        return (
            f"the topology asks for {gpus} GPUs on a node, and {site.hostname} has {len(site.gpus)}",
            "set gpus_per_rank = 0 under [topology], or run where there are GPUs",
        )
    return None


def _fewer_cpus(ranks: int, cpus_per_rank: int, cpus: int) -> str:
    if ranks <= cpus:
        return f"set cpus_per_rank = {cpus // ranks}"
    if cpus_per_rank <= cpus:
        return f"set ranks_per_node = {cpus // cpus_per_rank} or fewer"
    return f"set cpus_per_rank = 1 and ranks_per_node = {cpus} or fewer"


def warnings(topology: Topology, site: Site) -> tuple[str, ...]:
    found = []
    if topology.ranks_per_node > site.cpus:
        found.append(f"{topology.ranks_per_node} ranks share {site.cpus} CPUs: they will wait for each other")
    if site.load_1min > 0.5 * site.cpus:
        found.append(
            f"the machine is busy (load {site.load_1min:.1f} on {site.cpus} CPUs): timings will be noisy"
        )
    return tuple(found)
