"""What known frameworks need to form one world, besides their launcher: environment variables, and a command
that does not start ranks of its own. Pure.

Observed under torchrun, with Accelerate 1.15 and Lightning 2.6 on CPUs: without these settings each rank
trains a model of its own, and exits with code 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import UNSET

from bareboat import commands
from bareboat.launchers import Launcher
from bareboat.model import CodeFacts, Decision, Image, Job
from bareboat_base.errors import PlanError

_LIGHTNING = ("lightning", "pytorch_lightning")

#: Packages whose programs start workers themselves -> their name, the call that starts these, and the word in
#: a command that starts one cluster for all ranks.
_CLUSTERS = {
    "ray": ("Ray", "ray.init()", "ray"),
    "distributed": ("Dask", "Client()", "dask"),
}


def refuse_starters(job: Job, code: CodeFacts) -> None:
    """Raise PlanError for a command that starts ranks itself where Bareboat starts it several times: each
    would form a world of its own and exit with 0. A job that names its launcher is not checked."""
    if job.topology.world_size == 1 or job.launcher:
        return
    starter, where = commands.starter(job.command), "the command"
    remedy = 'leave it out of the command: ["python", "train.py", …]'
    if starter is None and code.starter is not UNSET and not code.starter[1].endswith(".py"):
        starter, where = code.starter
        remedy = f"let {where} start the program alone"
    if starter is None:
        return
    raise PlanError(
        f'{where} starts ranks by "{starter}", and Bareboat would start it {job.topology.world_size} times',
        context="each would form a world of its own: Bareboat is the launcher of a job with several ranks",
        remedy=f'{remedy}   # or name the launcher that starts it once for each rank: launcher = "ranks"',
    )


def settings(job: Job, image: Image | None, *, on_cpus: bool) -> Iterator[tuple[Decision, dict[str, str]]]:
    """Variables with their reasons, which the job's own override. `on_cpus`: the ranks see no GPU."""
    if image is None or job.topology.world_size == 1:
        return
    if on_cpus and "accelerate" in image.frameworks:
        # https://huggingface.co/docs/accelerate/package_reference/state
        yield _decided(
            "Accelerate",
            {"ACCELERATE_USE_CPU": "true"},
            "without a GPU, Accelerate ignores the launcher's ranks unless configured: each trains alone",
        )
    if any(name in image.frameworks for name in _LIGHTNING):
        # https://lightning.ai/docs/pytorch/stable/common/trainer.html : defaults of the Trainer's arguments
        yield _decided(
            "Lightning",
            {
                "PL_TRAINER_DEVICES": str(job.topology.ranks_per_node),
                "PL_TRAINER_NUM_NODES": str(job.topology.nodes),
            },
            "the Trainer's defaults are one node, and on CPUs one rank, which trains alone",
        )


def variable_read(launcher: Launcher, code: CodeFacts) -> str:
    """Which rank variable, besides PyTorch's, the code reads and the launcher sets; "" for none."""
    found = (f"{file} reads {name}" for name, file in code.rank_variables if name.startswith(launcher.SETS))
    return next(found, "")


def warnings(
    job: Job, image: Image | None, code: CodeFacts, *, on_cpus: bool, launcher: Launcher
) -> Iterator[str]:
    """Warnings about problems that no variable fixes."""
    if job.topology.world_size > 1 and code.rank_variables and not variable_read(launcher, code):
        variable, file = code.rank_variables[0]
        yield (
            f"{file} reads {variable}, which the launcher {launcher.NAME} does not set: every rank may be a "
            "singleton (size 1); set launcher to one that sets it, or read RANK, LOCAL_RANK and WORLD_SIZE"
        )
    if job.topology.world_size > 1 and code.starter is not UNSET and code.starter[1].endswith(".py"):
        starter, file = code.starter
        yield (
            f'{file} names "{starter}": ranks that it starts in each of the {job.topology.world_size} ranks '
            "would form several worlds; Bareboat is the launcher of a job with several ranks"
        )
    if image is None or job.topology.world_size == 1:
        return
    if on_cpus and any(name in image.frameworks for name in _LIGHTNING) and code.uses(*_LIGHTNING):
        yield (
            'on CPUs Lightning\'s Trainer(devices="auto") and devices=1 make each rank a world of its own: '
            f"leave devices out, or set devices={job.topology.ranks_per_node}"
        )
    if launcher.NAME != "ranks":  # another launcher was chosen for the ranks' framework
        return
    words = set(re.split(r"\W+", " ".join(job.command)))
    for package, (name, call, word) in _CLUSTERS.items():
        if package in image.frameworks and word not in words and code.uses(package, word):
            yield (
                f"each of the {job.topology.world_size} ranks runs the command, and {call} starts a {name} "
                "cluster in each: a job file for one cluster over all nodes is in docs/frameworks.md"
            )


def _decided(name: str, values: dict[str, str], reason: str) -> tuple[Decision, dict[str, str]]:
    choice = ", ".join(f"{variable}={value}" for variable, value in values.items())
    return Decision(subject=name, choice=choice, reason=reason), values
