"""Unmodified programs on two nodes of a real Slurm. The planner starts them, or a job file of
docs/frameworks.md, which runs as it stands there."""

import re
import secrets
from pathlib import Path

import pytest
from cluster_jobs import Ended, run_job, write_job
from clusters import Cluster
from tools import LAB, installed, interpreter

DOCS = Path(__file__).parents[2] / "docs" / "frameworks.md"


def run_documented(slurm: Cluster, name: str, program: str | None = None, **variables: str) -> Ended:
    """The job file of a section with its program, or with another one, in an activated environment."""
    text = DOCS.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    blocks = dict(re.findall(r"```(toml|python)[^\n]*\n(.*?)```", text, re.DOTALL))
    home = installed(f"frameworks/{name.lower()}")
    job = slurm.home / f"documented-{name}" / "job.toml"
    job.parent.mkdir(exist_ok=True)
    job.write_text(blocks["toml"])
    (job.parent / "train.py").write_text(program or blocks["python"])
    return run_job(
        slurm,
        job,
        path=f"{home / 'bin'}:{slurm.path}",
        environment={"VIRTUAL_ENV": str(home), **variables},
        limit_s=1200,
    )


TRAIN_WITH_LIGHTNING = """\
import lightning
from lightning.pytorch.demos.boring_classes import BoringModel
trainer = lightning.Trainer(max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(BoringModel())
print("lightning", trainer.global_rank, trainer.world_size, flush=True)
"""


@pytest.mark.frameworks
def test_lightning_under_srun_reads_slurms_variables(slurm: Cluster) -> None:
    """As its documentation starts it; the environment has no MPI, and none is checked."""
    python = interpreter("frameworks/lightning")
    job = write_job(slurm, "lightning-srun", python, TRAIN_WITH_LIGHTNING, more='launcher = "srun"')
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    assert "SLURM auto-requeueing enabled" in ended.log
    for rank in range(4):
        assert f"lightning {rank} 4" in ended.log, ended.log


@pytest.mark.frameworks
def test_dask_over_two_nodes(slurm: Cluster) -> None:
    ended = run_documented(slurm, "Dask")
    assert ended.code == 0, ended.log
    assert "4 workers on 2 nodes, sum 328350" in ended.log, ended.log


@pytest.mark.frameworks
def test_the_exit_code_of_a_program_on_dask(slurm: Cluster) -> None:
    ended = run_documented(slurm, "Dask", "raise SystemExit(7)\n")
    assert ended.code == 7, ended.log


@pytest.mark.frameworks
def test_ray_over_two_nodes(slurm: Cluster) -> None:
    ended = run_documented(slurm, "Ray", RAY_AUTH_TOKEN=secrets.token_hex(32))
    assert ended.code == 0, ended.log
    assert "4 workers on 2 nodes" in ended.log, ended.log


@pytest.mark.frameworks
def test_deepspeed_compiles_in_the_container_and_knows_the_ranks(slurm: Cluster) -> None:
    ended = run_documented(slurm, "DeepSpeed")
    assert ended.code == 0, ended.log
    for rank in range(4):
        assert f"rank {rank} of 4 sum 6" in ended.log, ended.log


@pytest.mark.frameworks
def test_accelerates_own_test_of_a_launcher(slurm: Cluster) -> None:
    """What `accelerate test` runs: it fails when the ranks do not share data, seeds and gradients. Its data
    are for two ranks."""
    python = interpreter("frameworks/lightning")
    job = write_job(slurm, "accelerate-test", python, "", ranks=1)
    words = f'"{python}", "-m", "accelerate.test_utils.scripts.test_script"'
    job.write_text(job.read_text().replace(f'"{python}", "script.py"', words))
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    assert ended.log.count("Num processes: 2") == 2, ended.log


SQUARES = """\
import socket
from mpi4py.futures import MPIPoolExecutor

def square(number):
    return number**2, socket.gethostname()

if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        found = list(pool.map(square, range(100)))
        total, hosts = sum(each for each, _ in found), {host for _, host in found}
        print(pool.num_workers, "workers on", len(hosts), "nodes, sum", total, flush=True)
"""


def test_mpi4pys_pool_over_two_nodes(slurm: Cluster) -> None:
    """Rank 0 runs the script, and the others are its workers."""
    python = LAB / "mpi" / "openmpi-5.0.11" / "bin" / "python"
    job = write_job(slurm, "mpi4py-futures", python, SQUARES)
    job.write_text(job.read_text().replace('"script.py"', '"-m", "mpi4py.futures", "script.py"'))
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    assert "3 workers on 2 nodes, sum 328350" in ended.log, ended.log
