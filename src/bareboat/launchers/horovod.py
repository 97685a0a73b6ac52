"""horovod: Horovod over Gloo. The job script starts every rank and sets its number; the ranks connect to a
small store beside rank 0 (bareboat.mpi.rendezvous). It uses neither MPI nor ssh.

The ranks get the variables that `horovodrun --gloo` sets (horovod/runner/gloo_run.py). Horovod over MPI
is started by the launchers srun, mpirun and image-mpirun.
"""

from __future__ import annotations

from bareboat.launchers import (
    INTERFACE,
    RANK_NAMES,
    RANK_VARIABLES,
    SECRET,
    Launch,
    Launcher,
    Passed,
    Surroundings,
    threads,
)
from bareboat.model import Job, Refusal, Start
from bareboat.mpi import authentication, rendezvous, text

_RENDEZVOUS = text.program(authentication, rendezvous)
_PRELUDE = """\
HOROVOD_RANK=$RANK HOROVOD_SIZE=$WORLD_SIZE
HOROVOD_LOCAL_RANK=$LOCAL_RANK HOROVOD_LOCAL_SIZE=$LOCAL_WORLD_SIZE
HOROVOD_CROSS_RANK=$BAREBOAT_NODE HOROVOD_CROSS_SIZE={nodes}
HOROVOD_HOSTNAME=$BAREBOAT_HOST
HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo
HOROVOD_GLOO_RENDEZVOUS_ADDR=$BAREBOAT_MASTER HOROVOD_GLOO_RENDEZVOUS_PORT=$BAREBOAT_PORT
unset HOROVOD_GLOO_IFACE
[ -z "$BAREBOAT_INTERFACE" ] || HOROVOD_GLOO_IFACE=$BAREBOAT_INTERFACE
"""
#: The job may set all other variables of this prefix: they are settings.
_OWN = (
    *(f"HOROVOD_{level}{name}" for level in ("", "LOCAL_", "CROSS_") for name in ("RANK", "SIZE")),
    "HOROVOD_HOSTNAME",
    "HOROVOD_CONTROLLER",
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_GLOO_RENDEZVOUS_*",
)


class Horovod(Launcher):
    NAME = "horovod"
    START = Start.RANKS
    KEEPS_OUTPUT = True
    REPLACES_MPI = True

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        image = around.image
        if image is not None and "horovod" not in image.frameworks:
            return Refusal(
                "Horovod is not in the environment", remedy='set site_layer = ["horovod"] in the job file'
            )
        return Launch(
            reason="Horovod over Gloo: neither MPI nor ssh takes part",
            argv=(around.python, "-c", _RENDEZVOUS),
            environment=threads(job),
            passed=Passed((*RANK_VARIABLES, SECRET), ("HOROVOD_",), (*RANK_NAMES, *_OWN, SECRET)),
            prelude=INTERFACE + _PRELUDE.format(nodes=job.topology.nodes),
        )
