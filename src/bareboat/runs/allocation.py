"""The scheduler job in which Bareboat itself runs: salloc, an interactive job, or a user's script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """`here`: this machine is one of the job's nodes, not the login node where salloc ran. `start`: the
    command prefix that starts a program on the first node."""

    scheduler: str
    job_id: str
    nodes: int
    here: bool
    start: tuple[str, ...] = ()


def find(environment: Mapping[str, str]) -> Allocation | None:
    """Detect the job from environment variables; None outside of a job."""
    slurm, count = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_NUM_NODES", "")
    if slurm.isdecimal() and count.isdecimal():
        here = "SLURMD_NODENAME" in environment
        words = ("srun", f"--jobid={slurm}", "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none")
        return Allocation(
            scheduler="slurm", job_id=slurm, nodes=int(count), here=here, start=() if here else words
        )
    for scheduler, number, file in (
        ("gridengine", "JOB_ID", "PE_HOSTFILE"),
        ("pbs", "PBS_JOBID", "PBS_NODEFILE"),
        ("lsf", "LSB_JOBID", "LSB_DJOB_HOSTFILE"),
    ):
        is_other = scheduler == "gridengine" and "SGE_TASK_ID" not in environment
        if environment.get(number) and not is_other:
            nodes = _nodes(environment.get(file, ""))
            return Allocation(scheduler=scheduler, job_id=environment[number], nodes=nodes, here=True)
    return None


def _nodes(path: str) -> int:
    """Count the different hosts in a host file; 1 without a file."""
    try:
        lines = Path(path).read_text(errors="replace").splitlines() if path else []
    except OSError:
        lines = []
    return len({line.split()[0] for line in lines if line.strip()}) or 1
