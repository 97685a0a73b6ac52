"""Ranks on several nodes that are one world, and ranks that are not, whatever starts them."""

import json
from pathlib import Path

import pytest
from cluster_jobs import MPI, TORCH, need_on_nodes, run_job, write_job
from clusters import Cluster
from worlds import STARTS_RANKS

WORLD = """\
import time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
time.sleep(8)
dist.destroy_process_group()
"""
#: As without its variable under Accelerate: each rank is told that it is the only one.
ALONE = "import os\nos.environ |= {'RANK': '0', 'WORLD_SIZE': '1', 'MASTER_PORT': '0'}\n" + WORLD.replace(
    "(8)", "(20)"
).replace('"gloo"', '"gloo", store=dist.HashStore(), rank=0, world_size=1')
#: Nodes that do not find each other: each has a world of its own.
APART = """\
import os
os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": os.environ["LOCAL_RANK"], "WORLD_SIZE": "2"}
os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
""" + WORLD.replace("(8)", "(20)")
MPI_WORLD = "import time\nfrom mpi4py import MPI\nassert MPI.COMM_WORLD.size == 4\ntime.sleep(6)\n"
#: Without its variables each rank would succeed as the only one.
READS_SLURM = "import os, torch\nassert int(os.environ.get('SLURM_NTASKS', 1)) == 4\n"
CASES = {
    "torchrun-silent": (TORCH, "torchrun", "import time\ntime.sleep(35)\n", "no connection between them"),
    "srun-chosen": (TORCH, "", READS_SLURM, ""),
    "torchrun-world": (TORCH, "torchrun", WORLD, ""),
    "torchrun-alone": (TORCH, "torchrun", ALONE, "no connection between them"),
    "ranks-world": (TORCH, "ranks", WORLD, ""),
    "ranks-apart": (TORCH, "ranks", APART, "between 2 groups of them"),
    "srun-world": (MPI, "srun", MPI_WORLD, ""),
}


@pytest.mark.frameworks
def test_only_ranks_that_are_no_world_are_told_of(slurm: Cluster) -> None:
    for python in (TORCH, MPI):
        need_on_nodes(python)
    names = {}
    for name, (python, launcher, script, _) in CASES.items():
        more = f'launcher = "{launcher}"\n' * bool(launcher) + 'engine = "native"'
        job = write_job(slurm, name, python, script, more=more)
        submitted = slurm.login(["bareboat", "submit", "--json", job], cwd=job.parent, timeout_s=240)
        names[name] = json.loads(submitted.stdout)["run_id"]
    for name, (*_, said) in CASES.items():
        waited = slurm.login(["bareboat", "wait", "--json", names[name]], check=False, timeout_s=300)
        record = json.loads(waited.stdout)
        log = slurm.login(["bareboat", "logs", names[name]], check=False)
        log_text = log.stdout + log.stderr
        assert record["exit_code"] == 0, (name, log_text)
        assert said in record["world_mark"], (name, log_text)
        assert bool(record["world_mark"]) is bool(said), (name, record["world_mark"])
        assert ("WARNING" in log_text) is bool(said), (name, log_text)
        (told,) = json.loads(slurm.login(["bareboat", "status", "--json", names[name]]).stdout)
        assert told["world_mark"] == record["world_mark"]


def test_a_program_that_starts_ranks_on_each_node_does_not_succeed(slurm: Cluster) -> None:
    job = write_job(
        slurm, "several", Path("/usr/bin/python3"), STARTS_RANKS, ranks=1, more='engine = "native"'
    )
    ended = run_job(slurm, job)
    mark = "the program started ranks itself in 2 of 2 ranks"
    assert (ended.code, mark in ended.log) == (3, True), ended.log
    shown = slurm.login(["bareboat", "status", "--json", ended.run_id], check=False)
    (status,) = json.loads(shown.stdout)
    assert (status["world_mark"], status["state"]) == (mark, "failed")
    assert mark in status["reason"]
