"""Names of engines, launchers and schedulers, and their classes, loaded on demand. Each has one instance.

To add one: write its file and add its line here; the contract tests then run on it. An installed package can
add its own through an entry point of the group `bareboat.engines`, `.launchers` or `.schedulers`.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, TypeGuard

from bareboat import backend, plugins
from bareboat.model.job import KEYS
from bareboat_base import ranges
from bareboat_base.errors import PlanError, UsageError
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from bareboat.engines import Engine
    from bareboat.launchers import Launcher
    from bareboat.model import SchedulerFacts, Site
    from bareboat.schedulers import Scheduler

#: Engines and launchers in the planner's order of preference: of engines, the one that adds least to a start
#: and to file calls comes first (bench/engines.py).
BUILT_IN = {
    "engines": {
        "bubblewrap": "bareboat.engines.bubblewrap:Bubblewrap",
        "charliecloud": "bareboat.engines.charliecloud:Charliecloud",
        "apptainer": "bareboat.engines.apptainer:Apptainer",
        "singularity": "bareboat.engines.singularity:Singularity",
        "podman": "bareboat.engines.podman:Podman",
        "podman-hpc": "bareboat.engines.podman_hpc:PodmanHpc",
        "udocker": "bareboat.engines.udocker:Udocker",
        "native": "bareboat.engines.native:Native",
    },
    "launchers": {
        "single": "bareboat.launchers.single:Single",
        "torchrun": "bareboat.launchers.torchrun:Torchrun",
        "srun": "bareboat.launchers.srun:Srun",
        "mpirun": "bareboat.launchers.mpirun:Mpirun",
        "image-mpirun": "bareboat.launchers.image_mpirun:ImageMpirun",
        "host-mpi": "bareboat.launchers.host_mpi:HostMpi",
        "jax": "bareboat.launchers.jax:Jax",
        "tensorflow": "bareboat.launchers.tensorflow:TensorFlow",
        "ranks": "bareboat.launchers.ranks:Ranks",
    },
    "schedulers": {
        "local": "bareboat.schedulers.local:Local",
        "slurm": "bareboat.schedulers.slurm:Slurm",
        "gridengine": "bareboat.schedulers.gridengine:GridEngine",
        "pbs": "bareboat.schedulers.pbs:PBS",
        "flux": "bareboat.schedulers.flux:Flux",
    },
}

#: In the package of plugins/.
_MOVED = ("enroot", "sarus", "shifter", "lsf")

#: The base class of each group.
_BASES = {"engines": "Engine", "launchers": "Launcher", "schedulers": "Scheduler"}

#: Names that do not exist -> what takes their place, and why.
_REMOVED = {
    ("engines", "docker"): (
        "bubblewrap",
        "unknown engine 'docker', which needs root: others run its images, by --image docker://NAME",
    ),
    ("launchers", "horovod"): (
        "mpirun",
        "Horovod over Gloo is not supported: start Horovod by MPI, with srun or mpirun",
    ),
}

#: The engine that is no container, and the scheduler of a job that names none: this machine.
BARE_METAL, HERE = "native", "local"


def is_queued(scheduler: str | None) -> TypeGuard[str]:
    """Whether a job for this scheduler waits in a queue, and does not run on this machine."""
    return scheduler not in (None, HERE)


class _UnknownNameError(PlanError):
    """No engine, launcher or scheduler has this name. `instead`: one that exists."""

    def __init__(self, message: str, kind: str, instead: str) -> None:
        super().__init__(message, remedy=ranges.setting(kind, f'"{instead}"'))
        self.instead = instead


def check(kind: str, name: str, *, called: str) -> None:
    """Raise UsageError, with the exit code of PlanError, for the name of an unknown engine, launcher or
    scheduler. `called`: the user's name for the key, the flag or the environment variable."""
    try:
        {"engine": engine, "launcher": launcher, "scheduler": scheduler}[kind](name)
    except PlanError as error:
        remedy = error.problem.remedy or ""
        if isinstance(error, _UnknownNameError):
            remedy = ranges.setting(called, f'"{error.instead}"')
        raise UsageError(error.message, remedy=remedy, code=error.code, key=kind, value=name) from None


def names(group: str) -> tuple[str, ...]:
    return tuple(_places(group))


def engine(name: str) -> Engine:
    """The engine NAME, or NAME:MODE."""
    base, colon, mode = name.partition(":")
    found: Engine = _instance("engines", base)
    if not colon:
        return found
    if mode not in found.MODES:
        has = f"modes: {', '.join(found.MODES)}" if found.MODES else "it has no modes"
        near = nearest(mode, found.MODES)
        raise _UnknownNameError(
            f"the engine {base} has no mode {mode!r}: {has}", "engine", f"{base}:{near}" if near else base
        )
    return found.MODES[mode]


def contains(name: str | None) -> bool:
    """Whether the engine of this name holds a container; None: the planner's choice, which does."""
    return name is None or engine(name.partition(":")[0]).CONTAINS


def modes(name: str) -> tuple[str, ...]:
    """The modes of an engine as NAME:MODE, best first; or its name."""
    if ":" in name:
        return (name,)
    return tuple(f"{name}:{mode}" for mode in engine(name).MODES) or (name,)


def launcher(name: str) -> Launcher:
    found: Launcher = _instance("launchers", name)
    return found


def scheduler(name: str) -> Scheduler:
    found: Scheduler = _instance("schedulers", name)
    return found


def slurm_facts(site: Site) -> SchedulerFacts | None:
    """The facts about the site's working scheduler whose jobs are Slurm's; None without one."""
    found = (facts for facts in site.schedulers if facts.works and facts.name in names("schedulers"))
    return next((facts for facts in found if scheduler(facts.name).IN_SLURM), None)


@functools.cache
def _places(group: str) -> dict[str, str]:
    found = dict(BUILT_IN[group])
    added = plugins.entry_points()
    for point in () if added is None else added.select(group=f"bareboat.{group}"):
        if point.name in found:
            raise UsageError(
                f"the package of {point.value!r} adds the {group[:-1]} {point.name!r}, which already exists",
                remedy="uninstall one of the two packages",
            )
        found[point.name] = point.value
    return found


def load_plugins() -> None:
    """Load and check what installed packages add, so that planning reads no file for it. Raises PlanError for
    the first that cannot be used."""
    for group, built_in in BUILT_IN.items():
        for name in _places(group):
            if name not in built_in:
                _instance(group, name)


@functools.cache
def _instance(group: str, name: str) -> Any:
    """The one instance of a class."""
    place = _place(group, name)
    if name not in BUILT_IN[group]:
        base = getattr(importlib.import_module(f"bareboat.{group}"), _BASES[group])
        return backend.load(base, name, place)
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)()


def _place(group: str, name: str) -> str:
    places = BUILT_IN[group]
    if name not in places:
        places = _places(group)
    if (group, name) in _REMOVED:
        instead, why = _REMOVED[group, name]
        raise _UnknownNameError(why, group[:-1], instead)
    if name in _MOVED and name not in places:
        raise PlanError(
            f"{name} was never run on the real tool: it is in the package bareboat-untested",
            remedy="install plugins/ of Bareboat's sources: pip install ./plugins",
        )
    if name not in places:
        near = nearest(name, places)
        known = f"did you mean {near!r}?" if near else f"known {group}: {', '.join(places)}"
        raise _UnknownNameError(
            f"unknown {group[:-1]} {quoted(name)}; {known}",
            group[:-1],
            near or KEYS[group[:-1]].example.strip('"'),
        )
    return places[name]
