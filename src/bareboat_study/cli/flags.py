"""Flags of `prove --resume`: the design of a study is fixed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import msgspec

from bareboat.model import Job, ProveRequest
from bareboat.model.job import KEYS
from bareboat.model.keys import value_of
from bareboat_base.errors import UsageError


def designed(job: Job, prove: ProveRequest, *, seed: int, env_from: list[str]) -> dict[str, object]:
    """The values of a study's flags by its job. `env_from`: the names that were passed now."""
    job = msgspec.structs.replace(job, prove=prove)
    return {
        **{
            key.dest: value_of(job, name)
            for name, key in KEYS.items()
            if key.flags and name != "prove.within_s"
        },
        "command": list(job.command),
        "ntasks": job.topology.world_size,
        "gpus": job.topology.world_size * job.topology.gpus_per_rank,
        "env_from": [name for name in env_from if name in job.environment_from],
        "seed": seed,
    }


def refuse_changes(options: argparse.Namespace, study: str, design: Mapping[str, object]) -> None:
    """Raise UsageError for a flag that would change a study's design. `design`: the value of each flag, and
    the same value again is accepted; a flag that it lacks is refused."""
    for name in (*design, "policy", "require_digest", "assignments"):
        requested = getattr(options, name)
        if requested is None or requested is False or requested in ([], design.get(name)):
            continue
        flag = {"command": "-- COMMAND", "assignments": "--set"}.get(name, f"--{name.replace('_', '-')}")
        raise UsageError(
            f"{flag} cannot change the study {study}: {_was(name, design)}",
            remedy=f"remove {flag}, or remove --resume to start a new study",
        )


def _was(name: str, design: Mapping[str, object]) -> str:
    if name not in design:
        return "its design is fixed" if name == "assignments" else "its images were checked before"
    value = design[name]
    return f"its {name} is not set" if value is None else f"it has {name} = {value}"
