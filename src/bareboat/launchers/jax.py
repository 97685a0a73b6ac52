"""jax: `jax.distributed.initialize()` without arguments finds its ranks.

Of its own variables JAX reads the coordinator's address, but neither the number of processes nor a process's
own. It gets those from the schedulers that it supports, so the ranks get them in Slurm's variables with every
scheduler.
Documentation: https://docs.jax.dev/en/latest/multi_process.html, source: jax/_src/clusters/slurm_cluster.py
"""

from __future__ import annotations

from bareboat.launchers import (
    INTERFACE,
    RANK_NAMES,
    RANK_VARIABLES,
    Launch,
    Launcher,
    Passed,
    Surroundings,
    threads,
)
from bareboat.model import Job, Refusal, Start

#: JAX detects Slurm only if all of these are set.
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
_PRELUDE = """\
JAX_COORDINATOR_ADDRESS=$BAREBOAT_MASTER:$BAREBOAT_PORT
SLURM_JOB_ID=${BAREBOAT_JOB//[!0-9]/} SLURM_STEP_NODELIST=$BAREBOAT_MASTER
SLURM_NTASKS=$WORLD_SIZE SLURM_PROCID=$RANK SLURM_LOCALID=$LOCAL_RANK
"""


class Jax(Launcher):
    NAME = "jax"
    START = Start.RANKS
    KEEPS_OUTPUT = True
    SETS = _SLURM

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        image = around.image
        if image is not None and "jax" not in image.frameworks:
            return Refusal("JAX is not in the environment", remedy="pip install jax")
        prelude = INTERFACE + _PRELUDE
        each = job.topology.gpus_per_rank
        if each > 1:  # by default it uses one device per rank
            prelude += f"first=$((LOCAL_RANK * {each}))\n"
            prelude += f'JAX_LOCAL_DEVICE_IDS=$(seq -s, "$first" "$((first + {each - 1}))")\n'
        return Launch(
            reason="jax.distributed.initialize() receives the coordinator and the ranks",
            environment=threads(job),
            passed=Passed(
                (*RANK_VARIABLES, *_SLURM), ("JAX_",), (*RANK_NAMES, *_SLURM, "JAX_COORDINATOR_ADDRESS")
            ),
            prelude=prelude,
        )
