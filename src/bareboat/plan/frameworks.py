"""The environment variables by which known frameworks form one world, beside those of the launcher. Pure.

Seen under torchrun, with Accelerate 1.15 and Lightning 2.6 on CPUs: without it each rank trains a model of
its own, and ends with exit code 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from bareboat.model import Decision, Image, Job

_LIGHTNING = ("lightning", "pytorch_lightning")


def settings(job: Job, image: Image | None, *, on_cpus: bool) -> Iterator[tuple[Decision, dict[str, str]]]:
    """Variables that lie below the job's own, each with its reason. `on_cpus`: the ranks see no GPU."""
    if image is None or job.topology.world_size == 1:
        return
    if on_cpus and "accelerate" in image.frameworks:
        # https://huggingface.co/docs/accelerate/package_reference/state
        yield _decided(
            "Accelerate",
            {"ACCELERATE_USE_CPU": "true"},
            "without a GPU Accelerate ignores the launcher's ranks unless it is told so: each trains alone",
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


def warnings(job: Job, image: Image | None, *, on_cpus: bool) -> tuple[str, ...]:
    """What no variable can change."""
    if image is None or job.topology.world_size == 1 or not on_cpus:
        return ()
    if not any(name in image.frameworks for name in _LIGHTNING):
        return ()
    return (
        'on CPUs Lightning\'s Trainer(devices="auto") and devices=1 make each rank a world of its own: '
        f"leave devices out, or set devices={job.topology.ranks_per_node}",
    )


def _decided(name: str, values: dict[str, str], reason: str) -> tuple[Decision, dict[str, str]]:
    choice = ", ".join(f"{variable}={value}" for variable, value in values.items())
    return Decision(subject=name, choice=choice, reason=reason), values
