"""On a Slurm that binds, each rank may use the processors that the job was granted, and no other rank's."""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from cluster_jobs import MPI, need_on_nodes, write_job
from clusters import Cluster

from bareboat.captures import capture
from bareboat.model import CaptureRequest
from bareboat_images.store import Store

#: Of a step of another job on one core, as sbatch inherits it there.
STEP = {
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
    "SLURM_CPU_BIND_LIST": "0x1",
    "SLURM_CPU_BIND_TYPE": "mask_cpu:",
    "SLURM_CPU_BIND_VERBOSE": "quiet",
    "SLURM_CPUS_PER_TASK": "1",
    "SLURM_TRES_PER_TASK": "cpu:1",
    "SLURM_JOB_ID": "7",
    "SLURM_MEM_PER_CPU": "100",
    "SLURM_NTASKS": "1",
}
#: What a user may have set for lists.
LISTS = {"SQUEUE_PARTITION": "none", "SQUEUE_FORMAT2": "JobID", "SLURM_TIME_FORMAT": "relative"}
MEMORY = "[scheduling]\nmem_per_node_bytes = 2_000_000_000"
SCRIPT = """\
import os, platform, time
{begin}
print("mask", platform.node(), os.environ["RANK"], *sorted(os.sched_getaffinity(0)))
"""
BY_MPI = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"
CASES = {
    "ranks": (Path("/usr/bin/python3"), ""),
    "srun": (MPI, BY_MPI),
    "image-mpirun": (MPI, BY_MPI),
    "mpirun": (MPI, BY_MPI),
}


def masks(log: str) -> dict[str, list[frozenset[int]]]:
    """Node -> the processors of each of its ranks."""
    found = defaultdict(list)
    for node, _, cpus in sorted(set(re.findall(r"mask (\S+) (\d+) ([\d ]+)", log))):
        found[node].append(frozenset(map(int, cpus.split())))
    return dict(found)


def fits(ranks: list[frozenset[int]]) -> bool:
    """Whether each rank has a processor of its own, alone or among those that it shares."""
    return all(len(mask) >= sum(other <= mask for other in ranks) for mask in ranks)


def submit(up: Cluster, job: Path, launcher: str) -> str:
    words = ["bareboat", "submit", "--json", job, "--launcher", launcher]
    submitted = up.login(words, cwd=job.parent, environment=STEP)
    run_id: str = json.loads(submitted.stdout)["run_id"]
    return run_id


def check_masks(up: Cluster, launcher: str, run: str) -> None:
    code = up.login(["bareboat", "wait", run], check=False, environment=LISTS).returncode
    log = up.login(["bareboat", "logs", run], check=False)
    found = masks(log.stdout)
    said = (launcher, code, log.stdout + log.stderr)
    assert [len(ranks) for ranks in found.values()] == [2, 2], said
    assert all(fits(ranks) and frozenset().union(*ranks) == {0, 1} for ranks in found.values()), said
    assert code == 0, said
    status = json.loads(up.login(["bareboat", "status", "--json", run]).stdout)[0]
    assert [each["node"] for each in status["health"]["nodes"]] == sorted(found), status
    assert status["health"]["marks"] == [], status


def test_no_two_ranks_are_on_one_core(slurm: Cluster) -> None:
    runs = {}
    for launcher, (python, begin) in CASES.items():
        need_on_nodes(python)
        more = f'engine = "native"\n{MEMORY}'
        job = write_job(slurm, f"masks-{launcher}", python, SCRIPT.format(begin=begin), more=more)
        runs[launcher] = submit(slurm, job, launcher)
    for launcher, run in runs.items():
        check_masks(slurm, launcher, run)


@pytest.mark.long
def test_no_two_ranks_of_torchrun_are_on_one_core(slurm: Cluster) -> None:
    """In an image of this machine's PyTorch, which other systems can run, too."""
    pytest.importorskip("torch", reason="torchrun: PyTorch is not installed")
    store = Store(slurm.home / ".local" / "share" / "bareboat")
    image, _ = capture(CaptureRequest(python=sys.executable), store)
    job = write_job(slurm, "masks-torchrun", Path(image.python), SCRIPT.format(begin=""), more=MEMORY)
    text = job.read_text().partition("[capture]")[0]
    job.write_text(f'image = "{image.digest}"\n{text}')
    check_masks(slurm, "torchrun", submit(slurm, job, "torchrun"))


def test_a_job_in_the_shell_of_salloc_has_all_processors_of_the_job(slurm: Cluster) -> None:
    """Slurm 24.11 exports what one task has: the script, and the ranks that it starts, had one core."""
    more = 'engine = "native"\nlauncher = "ranks"'
    job = write_job(slurm, "salloc", Path("/usr/bin/python3"), SCRIPT.format(begin=""), nodes=1, more=more)
    words = ["salloc", "-Q", "--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "bareboat", "run", job]
    done = slurm.login(words, cwd=job.parent, check=False)
    (ranks,) = masks(done.stdout + done.stderr).values()
    assert (len(ranks), fits(ranks), frozenset().union(*ranks)) == (2, True, {0, 1}), done.stderr
