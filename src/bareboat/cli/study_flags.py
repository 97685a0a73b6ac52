"""Flags of `prove --resume`: the design of a study is fixed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from msgspec import UNSET

from bareboat.cli.job import TOPOLOGY
from bareboat.model import Job
from bareboat_base.errors import UsageError

#: The flags that would change a design.
_DESIGN = (
    "repeats", "margin", "confidence", "seed", "quick", "until_decided", "engine", "launcher", "image",
    "python", "writable", "form", *TOPOLOGY, "ntasks", "gpus", "time", "mem", "partition", "account",
    "env_from", "policy", "require_digest", "scheduler", "qos", "reservation", "constraint", "delivery",
    "node_scratch", "command",
)  # fmt: skip


def designed(job: Job, *, seed: int, env_from: list[str]) -> dict[str, object]:
    """The values of a study's flags by its job. `env_from`: the names that were passed now."""
    prove = job.prove
    return {
        "engine": job.engine,
        "launcher": job.launcher,
        "image": job.image,
        "form": job.form,
        "writable": job.writable,
        "python": job.capture.python,
        "command": list(job.command),
        **{name: getattr(job.topology, name) for name in TOPOLOGY},
        "ntasks": job.topology.world_size,
        "gpus": job.topology.world_size * job.topology.gpus_per_rank,
        "time": job.walltime_s,
        "mem": job.scheduling.mem_per_node_bytes,
        "partition": job.scheduling.partition,
        "account": job.scheduling.account,
        "qos": job.scheduling.qos,
        "reservation": job.scheduling.reservation,
        "constraint": job.scheduling.constraint,
        "scheduler": job.scheduler,
        "delivery": job.delivery,
        "node_scratch": job.node_scratch,
        "env_from": [name for name in env_from if name in job.environment_from],
        "quick": prove.quick is True,
        "until_decided": prove.until_decided is True,
        "seed": seed,
        **{name: getattr(prove, name) for name in ("repeats", "margin", "confidence")},
    }


def refuse_changes(options: argparse.Namespace, study: str, design: Mapping[str, object]) -> None:
    """Raise UsageError for a flag that would change a study's design. `design`: the value of each flag, and
    the same value again is accepted; a flag that it lacks is refused."""
    for name in _DESIGN:
        requested = getattr(options, name)
        if name == "python" and requested:
            requested = os.path.abspath(requested)
        if requested is None or requested is False or requested in ([], design.get(name)):
            continue
        flag = "-- COMMAND" if name == "command" else f"--{name.replace('_', '-')}"
        raise UsageError(
            f"{flag} cannot change the study {study}: {_was(name, design)}",
            remedy=f"remove {flag}, or remove --resume to start a new study",
        )


def _was(name: str, design: Mapping[str, object]) -> str:
    if name not in design:
        return "its images were checked before"
    value = design[name]
    return f"its {name} is not set" if value is None or value is UNSET else f"it has {name} = {value}"
