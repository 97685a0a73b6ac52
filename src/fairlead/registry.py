"""Names of engines, launchers and schedulers, and the modules behind them, loaded when asked for.

To add one: write its file, add its line here; the contract tests then run on it. An installed package
can add its own through an entry point of the group `fairlead.engines`, `.launchers` or `.schedulers`.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, cast

from fairlead.errors import PlanError, UsageError
from fairlead.nearest import nearest

if TYPE_CHECKING:
    from fairlead.engines import Engine
    from fairlead.launchers import Launcher
    from fairlead.schedulers import Scheduler

#: Launchers in the planner's order of preference. Engines are tried by what they cost a job (`plan.ranking`);
#: here they stand as they are printed.
BUILT_IN = {
    "engines": {
        "bubblewrap": "fairlead.engines.bubblewrap",
        "charliecloud": "fairlead.engines.charliecloud",
        "apptainer": "fairlead.engines.apptainer",
        "singularity": "fairlead.engines.singularity",
        "podman": "fairlead.engines.podman",
        "podman-hpc": "fairlead.engines.podman_hpc",
        "udocker": "fairlead.engines.udocker",
        # Never run on the real tool: after all that was.
        "enroot": "fairlead.engines.enroot",
        "sarus": "fairlead.engines.sarus",
        "shifter": "fairlead.engines.shifter",
        "native": "fairlead.engines.native",
    },
    "launchers": {
        "single": "fairlead.launchers.single",
        "torchrun": "fairlead.launchers.torchrun",
        "srun": "fairlead.launchers.srun",
        "mpirun": "fairlead.launchers.mpirun",
        "image-mpirun": "fairlead.launchers.image_mpirun",
        "host-mpi": "fairlead.launchers.host_mpi",
        "horovod": "fairlead.launchers.horovod",
        "jax": "fairlead.launchers.jax",
        "tensorflow": "fairlead.launchers.tensorflow",
        "ranks": "fairlead.launchers.ranks",
    },
    "schedulers": {
        "local": "fairlead.schedulers.local",
        "slurm": "fairlead.schedulers.slurm",
        "gridengine": "fairlead.schedulers.gridengine",
        "pbs": "fairlead.schedulers.pbs",
        "lsf": "fairlead.schedulers.lsf",
        "flux": "fairlead.schedulers.flux",
    },
}


def names(group: str) -> tuple[str, ...]:
    return tuple(_modules(group))


def engine(name: str) -> Engine:
    """The engine NAME, or NAME:MODE."""
    base, colon, mode = name.partition(":")
    module = _load("engines", base)
    return cast("Engine", module if not colon else _mode(module, base, mode))


def modes(name: str) -> tuple[str, ...]:
    """What an engine's name stands for: NAME:MODE for each of its modes, best first; or itself."""
    if ":" in name:
        return (name,)
    return tuple(f"{name}:{mode}" for mode in getattr(_load("engines", name), "MODES", ())) or (name,)


def _mode(module: Any, name: str, mode: str) -> Any:
    found = getattr(module, "MODES", {})
    if mode not in found:
        has = f"its modes are {', '.join(found)}" if found else "it has none to choose from"
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
def _modules(group: str) -> dict[str, str]:
    import importlib.metadata  # here, because it takes 10 ms and a built-in name does not need it

    found = dict(BUILT_IN[group])
    for point in importlib.metadata.entry_points(group=f"fairlead.{group}"):
        if point.name in found:
            raise UsageError(
                f"the package behind {point.value!r} adds {group[:-1]} {point.name!r}, which exists already",
                remedy="uninstall one of the two",
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
            f"there is no {group[:-1]} {name!r}" + (f"; did you mean {near!r}?" if near else ""),
            remedy=f"the {group} are: {', '.join(modules)}",
        )
    return importlib.import_module(modules[name])
