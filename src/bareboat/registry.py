"""Names of engines, launchers and schedulers, and their modules, loaded on demand.

To add one: write its file and add its line here; the contract tests then run on it. An installed package can
add its own through an entry point of the group `bareboat.engines`, `.launchers` or `.schedulers`.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from bareboat_base.errors import PlanError, UsageError
from bareboat_base.nearest import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from bareboat.engines import Engine
    from bareboat.launchers import Launcher
    from bareboat.schedulers import Scheduler

#: Launchers in the planner's order of preference. Engines in print order; they are ranked by what they cost a
#: job (`plan.ranking`).
BUILT_IN = {
    "engines": {
        "bubblewrap": "bareboat.engines.bubblewrap",
        "charliecloud": "bareboat.engines.charliecloud",
        "apptainer": "bareboat.engines.apptainer",
        "singularity": "bareboat.engines.singularity",
        "podman": "bareboat.engines.podman",
        "podman-hpc": "bareboat.engines.podman_hpc",
        "udocker": "bareboat.engines.udocker",
        # Not tested with the real tool, so after all that were.
        "enroot": "bareboat.engines.enroot",
        "sarus": "bareboat.engines.sarus",
        "shifter": "bareboat.engines.shifter",
        "native": "bareboat.engines.native",
    },
    "launchers": {
        "single": "bareboat.launchers.single",
        "torchrun": "bareboat.launchers.torchrun",
        "srun": "bareboat.launchers.srun",
        "mpirun": "bareboat.launchers.mpirun",
        "image-mpirun": "bareboat.launchers.image_mpirun",
        "host-mpi": "bareboat.launchers.host_mpi",
        "horovod": "bareboat.launchers.horovod",
        "jax": "bareboat.launchers.jax",
        "tensorflow": "bareboat.launchers.tensorflow",
        "ranks": "bareboat.launchers.ranks",
    },
    "schedulers": {
        "local": "bareboat.schedulers.local",
        "slurm": "bareboat.schedulers.slurm",
        "gridengine": "bareboat.schedulers.gridengine",
        "pbs": "bareboat.schedulers.pbs",
        "lsf": "bareboat.schedulers.lsf",
        "flux": "bareboat.schedulers.flux",
    },
}


#: The engine that is no container, and the scheduler of a job that names none: this machine.
BARE_METAL, HERE = "native", "local"


def is_queued(scheduler: str | None) -> TypeGuard[str]:
    """Whether a job for this scheduler waits in a queue, and does not run on this machine."""
    return scheduler not in (None, HERE)


def names(group: str) -> tuple[str, ...]:
    return tuple(_modules(group))


def engine(name: str) -> Engine:
    """The engine NAME, or NAME:MODE."""
    base, colon, mode = name.partition(":")
    module = _load("engines", base)
    return cast("Engine", module if not colon else _mode(module, base, mode))


def contains(name: str | None) -> bool:
    """Whether the engine of this name holds a container; None: the planner's choice, which does."""
    return name is None or engine(name.partition(":")[0]).CONTAINS


def modes(name: str) -> tuple[str, ...]:
    """The modes of an engine as NAME:MODE, best first; or its name."""
    if ":" in name:
        return (name,)
    return tuple(f"{name}:{mode}" for mode in getattr(_load("engines", name), "MODES", ())) or (name,)


def _mode(module: Any, name: str, mode: str) -> Any:
    found = getattr(module, "MODES", {})
    if mode not in found:
        has = f"modes: {', '.join(found)}" if found else "it has no modes"
        raise PlanError(
            f"the engine {name} has no mode {mode!r}: {has}",
            remedy=f"--engine {name}" + "".join(f", or --engine {name}:{each}" for each in found),
        )
    return found[mode]


def launcher(name: str) -> Launcher:
    return cast("Launcher", _load("launchers", name))


def scheduler(name: str) -> Scheduler:
    return cast("Scheduler", _load("schedulers", name))


@functools.cache
def _added() -> EntryPoints:
    """What installed packages add, read once for all groups."""
    import importlib.metadata  # here, because it takes 10 ms and a built-in name does not need it

    # Python 3.11 returns a dict that has the same select().
    return cast("EntryPoints", importlib.metadata.entry_points())


@functools.cache
def _modules(group: str) -> dict[str, str]:
    found = dict(BUILT_IN[group])
    for point in _added().select(group=f"bareboat.{group}"):
        if point.name in found:
            raise UsageError(
                f"the package of {point.value!r} adds the {group[:-1]} {point.name!r}, which already exists",
                remedy="uninstall one of the two packages",
            )
        found[point.name] = point.value
    return found


def _load(group: str, name: str) -> Any:
    modules = BUILT_IN[group]
    if name not in modules:
        modules = _modules(group)
    if name not in modules:
        near = nearest(name, modules)
        raise PlanError(
            f"unknown {group[:-1]} {name!r}" + (f"; did you mean {near!r}?" if near else ""),
            remedy=f"known {group}: {', '.join(modules)}",
        )
    return importlib.import_module(modules[name])
