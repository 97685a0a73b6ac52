"""Bareboat: any image, any cluster, no admin, no edits; and the cost measured.

job = bareboat.Job(["python", "train.py"], nodes=3, ranks_per_node=2)
print(job.plan())
run = job.submit(partition="gpu").wait()
print(run.exit_code, run.log(rank=0))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bareboat_base import __version__

if TYPE_CHECKING:
    from bareboat.api.container import Container
    from bareboat.api.images import capture, pull, save_sif
    from bareboat.api.job import Job, Plan, Sweep, sweep
    from bareboat.api.run import Run, SweepRun, TimedOut
    from bareboat_base.errors import BareboatError
    from bareboat_study.api import Study


#: Loaded when first used: the command line needs none of them.
_PLACES = {
    **dict.fromkeys(("Job", "Plan", "Sweep", "sweep"), "bareboat.api.job"),
    **dict.fromkeys(("Run", "SweepRun", "TimedOut"), "bareboat.api.run"),
    "Study": "bareboat_study.api",
    **dict.fromkeys(("capture", "pull", "save_sif"), "bareboat.api.images"),
    "Container": "bareboat.api.container",
    "BareboatError": "bareboat_base.errors",
}
__all__ = [
    "BareboatError", "Container", "Job", "Plan", "Run", "Study", "Sweep", "SweepRun", "TimedOut",
    "__version__", "capture", "pull", "save_sif", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
