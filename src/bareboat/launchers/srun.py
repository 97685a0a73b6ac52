"""srun: Slurm starts every rank and numbers it by PMIx or PMI-2, or only by environment variables where
nothing uses MPI.

Documentation: https://slurm.schedmd.com/mpi_guide.html
"""

from __future__ import annotations

from msgspec import structs

from bareboat.launchers import INTERFACE, Launch, Launcher, Surroundings, by_mpi
from bareboat.model import Job, Refusal, Start, Word
from bareboat.mpi.start_methods import NO_PLUGIN, Rung, Step

#: Bash expressions of a rank's numbers.
NAMES = {"rank": "${SLURM_PROCID:-0}", "local_rank": "${SLURM_LOCALID:-0}"}


class Srun(Launcher):
    NAME = "srun"
    START = Start.PROGRAM
    RUNG = Rung.DIRECT
    SETS = ("SLURM_", "PMI")

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        if not around.in_slurm:
            return Refusal(
                "it is Slurm's, and the job is not Slurm's", remedy="bareboat submit --scheduler slurm"
            )
        found = by_mpi.judge(self.RUNG, self.NAME, job, around)
        if isinstance(found, Refusal):
            return found
        launch = by_mpi.launch_from_outside(found, job, around, words(found, job), **NAMES)
        if found.plugin != NO_PLUGIN:
            return launch
        return structs.replace(
            launch,
            reason=found.reason,
            prelude=INTERFACE + launch.prelude,
            mpi_check=None,
            check_subject=None,
            note="",
            warning=by_mpi.unjudged(around.image, job),
        )


def words(found: Step, job: Job) -> tuple[Word, ...]:
    """The words that start the ranks."""
    topology = job.topology
    return (
        "srun",
        f"--mpi={found.plugin}",
        f"--nodes={topology.nodes}",
        f"--ntasks={topology.world_size}",
        f"--ntasks-per-node={topology.ranks_per_node}",
        f"--cpus-per-task={topology.cpus_per_rank or 1}",  # since 22.05 srun does not use the job's own
        "--kill-on-bad-exit=1",
        "--label" if topology.world_size > 1 else "--unbuffered",
    )
