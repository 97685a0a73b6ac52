"""jax: `jax.distributed.initialize()` without arguments finds its ranks.

Of its own variables JAX reads the coordinator's address, but neither the number of processes nor a process's
own. Those it takes from the schedulers that it knows, so it is told them by Slurm's names, whatever the
scheduler is.
Documentation: https://docs.jax.dev/en/latest/multi_process.html, source: jax/_src/clusters/slurm_cluster.py
"""

from __future__ import annotations

import msgspec

from bareboat.launchers import (
    INTERFACE,
    RANK_NAMES,
    RANK_VARIABLES,
    Launchable,
    Passed,
    Surroundings,
    threads,
)
from bareboat.model import Command, Job, Position, Refusal, Start, Where, Word

NAME = "jax"
POSITION = Position.OUTSIDE
START = Start.RANKS
KEEPS_OUTPUT = True

#: All of these must be there, or JAX does not take it for Slurm.
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")

_PRELUDE = """\
JAX_COORDINATOR_ADDRESS=$BAREBOAT_MASTER:$BAREBOAT_PORT
SLURM_JOB_ID=${BAREBOAT_JOB//[!0-9]/} SLURM_STEP_NODELIST=$BAREBOAT_MASTER
SLURM_NTASKS=$WORLD_SIZE SLURM_PROCID=$RANK SLURM_LOCALID=$LOCAL_RANK
"""


def judge(job: Job, surroundings: Surroundings) -> Launchable | Refusal:
    image = surroundings.image
    if image is not None and "jax" not in image.frameworks:
        return Refusal("JAX is not in the environment", remedy="pip install jax")
    return Launchable("jax.distributed.initialize() is told the coordinator and the ranks")


def wrap(command: Command, job: Job, surroundings: Surroundings) -> Command:
    return msgspec.structs.replace(
        command, environment={**threads(job), **command.environment}, where=Where.RANK
    )


def passed(job: Job) -> Passed:
    own = (*RANK_NAMES, *_SLURM, "JAX_COORDINATOR_ADDRESS")
    return Passed((*RANK_VARIABLES, *_SLURM), ("JAX_",), own)


def program(job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
    return ()


def prelude(job: Job, surroundings: Surroundings) -> str:
    lines = INTERFACE + _PRELUDE
    each = job.topology.gpus_per_rank
    if each > 1:  # alone it takes one device for each rank
        lines += f"first=$((LOCAL_RANK * {each}))\n"
        lines += f'JAX_LOCAL_DEVICE_IDS=$(seq -s, "$first" "$((first + {each - 1}))")\n'
    return lines


def proof(job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
    return None
