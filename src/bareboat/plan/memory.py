"""How much memory a rank gets: the job's request, or the site's default, which no script shows."""

from __future__ import annotations

from bareboat.model import Decision, DefaultMemory, Image, Job, Site
from bareboat.schedulers import Scheduler
from bareboat.schedulers.requests import cpus_per_node

_TITLES = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
}
#: Bytes that a rank has used, and reserved of its address space, after the import and one small operation on
#: two CPUs: PyTorch 2.13, TensorFlow 2.15.1, JAX 0.10.2. Training takes more, and so does CUDA.
_LEAST = {
    "tensorflow": (481 << 20, 1608 << 20),
    "torch": (284 << 20, 763 << 20),
    "jax": (164 << 20, 925 << 20),
}


def choose_memory(
    job: Job, image: Image | None, site: Site, scheduler: Scheduler
) -> tuple[tuple[str, ...], tuple[Decision, ...]]:
    """Warnings; and the decision if the site's default applies and is known."""
    default = _default(job, site, scheduler.NAME)
    asked = job.scheduling.mem_per_node_bytes
    ranks = job.topology.ranks_per_node
    if scheduler.IS_LOCAL or (asked is None and default is None):
        return (), ()
    decided: tuple[Decision, ...] = ()
    if asked is not None:
        each, virtual = asked // ranks, scheduler.LIMITS_VIRTUAL_MEMORY
    else:
        assert default is not None
        found = _per_rank(job, site, scheduler.NAME, default)
        if found is None:
            return (), ()
        each, virtual = found, default.virtual
        reason = f"the site's default, {default.setting}; mem_per_node_bytes under [scheduling] asks for more"
        what = "of virtual memory for each rank" if virtual else "for each rank"
        decided = (Decision(subject="memory", choice=f"{_size(each)} {what}", reason=reason),)
    return _too_little(image, each, ranks, virtual=virtual), decided


def _default(job: Job, site: Site, scheduler: str) -> DefaultMemory | None:
    facts = site.scheduler(scheduler)
    if facts is None:
        return None
    partition = facts.partition(job.scheduling.partition)
    own = partition.default_memory if partition is not None else None
    return own or facts.default_memory


def _per_rank(job: Job, site: Site, scheduler: str, default: DefaultMemory) -> int | None:
    """Bytes per rank; None where it depends on what the scheduler will allocate."""
    topology = job.topology
    if any("mem" in option for option in job.scheduling.options):
        return None
    cpus = cpus_per_node(job)
    if job.scheduling.exclusive and default.per == "cpu":
        facts = site.scheduler(scheduler)
        partition = facts.partition(job.scheduling.partition) if facts is not None else None
        if partition is None or partition.cpus_per_node is None:
            return None
        cpus = partition.cpus_per_node  # all of the node's
    match default.per:
        case "cpu":
            return default.bytes * cpus // topology.ranks_per_node
        case "node":
            return default.bytes // topology.ranks_per_node
        case "job":
            return default.bytes // topology.world_size
        case _:
            return default.bytes


def _too_little(image: Image | None, each: int, ranks: int, *, virtual: bool) -> tuple[str, ...]:
    if image is None:
        return ()
    for name, needed in _LEAST.items():
        if name in image.frameworks and each < needed[virtual]:
            kind = "virtual memory" if virtual else "memory"
            return (
                f"a rank gets {_size(each)}, and {_TITLES[name]} alone takes {_size(needed[virtual])} of "
                f"{kind}: set mem_per_node_bytes = {2 * needed[virtual] * ranks} or more under [scheduling]",
            )
    return ()


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
