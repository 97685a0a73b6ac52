"""Horovod, JAX and TensorFlow on two nodes of a real Slurm, in containers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import pip_finds, run_job, write_job
from clusters import Cluster
from environments import make_environment, site_packages
from horovod_training import TRAINS
from tools import LAB, interpreter

pytestmark = pytest.mark.frameworks


TRAIN_HOROVOD = f"""\
import os, shutil
batch = 8
{TRAINS}
print("trained", hvd.rank(), hvd.size(), hvd.local_rank(), right, "mpi" if hvd.mpi_enabled() else "gloo",
      shutil.which("ssh"), flush=True)
"""


def test_horovod_over_mpi_is_inferred(slurm: Cluster) -> None:
    job = write_job(slurm, "horovod-mpi", interpreter("horovod/env"), TRAIN_HOROVOD)
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    for rank in range(4):
        assert f"trained {rank} 4 {rank % 2} True mpi" in ended.log, ended.log


def test_horovod_over_mpi_by_the_images_own_mpirun(slurm: Cluster) -> None:
    job = write_job(slurm, "horovod-own", interpreter("horovod/env"), TRAIN_HOROVOD)
    ended = run_job(slurm, job, "--launcher", "image-mpirun")
    assert ended.code == 0, ended.log
    assert ended.log.count(" True mpi") == 4, ended.log


@pytest.fixture
def bare_torch(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of an environment with PyTorch, and with neither Horovod nor any MPI. pip on the login node
    finds the wheels of both by its own settings, and no index."""
    packages = interpreter("horovod/env").parents[1] / "lib/python3.11/site-packages"
    folders = [LAB / "mpi" / "wheels", LAB / "horovod" / "wheels"]
    if not all(list(folder.glob("*.whl")) for folder in folders):
        pytest.skip(f"there are no wheels in {folders[0]}: sudo tests/lab/mpi-pairs.sh")
    environment = tmp_path_factory.mktemp("torch") / "env"
    found = make_environment(environment, base="/usr/bin/python3")
    for package in packages.iterdir():
        if not package.name.startswith(("horovod", "mpi4py", "pip", "setuptools", "_distutils", "__")):
            (site_packages(environment) / package.name).symlink_to(package)
    with pip_finds(slurm, *folders):
        yield found


def test_horovod_through_a_site_layer(slurm: Cluster, bare_torch: Path) -> None:
    """The image has neither Horovod nor MPI, and stays so; what the job asks for is put on it once."""
    job = write_job(slurm, "layered", bare_torch, TRAIN_HOROVOD, more='site_layer = ["horovod"]')
    before = slurm.login(["bareboat", "plan", "-v", "--prepare", job], cwd=job.parent)
    assert "openmpi 5.0.11, horovod 0.28.1 on image" in before.stdout
    assert "srun --mpi=pmix" in before.stdout
    for options in ((), ("--launcher", "mpirun")):
        ended = run_job(slurm, job, *options)
        assert ended.code == 0, ended.log
        for rank in range(4):
            assert f"trained {rank} 4 {rank % 2} True mpi" in ended.log, ended.log
    after = slurm.login(["bareboat", "plan", "-v", job], cwd=job.parent)
    assert "to be made first" not in after.stdout
    images = slurm.login(["bareboat", "image", "ls"]).stdout
    assert images.count("-openmpi-5.0.11-horovod-0.28.1-") == 1, images


def test_jax_on_one_machine_without_a_scheduler(slurm: Cluster) -> None:
    """On the login node, at once."""
    job = write_job(slurm, "here-jax", interpreter("frameworks/jax"), FIND_RANKS, nodes=1)
    job.write_text(job.read_text().replace('scheduler = "slurm"', 'launcher = "jax"'))
    done = slurm.login(["bareboat", "run", job], cwd=job.parent, check=False)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"[rank {rank}] found {rank} 2 [0, 1]" in done.stdout, done.stdout


FIND_RANKS = """\
import jax
jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils
ranks = multihost_utils.process_allgather(jnp.array([jax.process_index()])).ravel().tolist()
print("found", jax.process_index(), jax.process_count(), ranks, flush=True)
"""


def test_jax_finds_its_ranks(slurm: Cluster) -> None:
    job = write_job(slurm, "jax", interpreter("frameworks/jax"), FIND_RANKS)
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    for rank in range(4):
        assert f"found {rank} 4 [0, 1, 2, 3]" in ended.log, ended.log


def test_tensorflows_workers_train_one_model(slurm: Cluster) -> None:
    script = """\
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile("sgd", "mse")
x = np.random.default_rng(1).normal(size=(64, 4)).astype("f")
model.fit(x, x.sum(1), epochs=3, batch_size=16, verbose=0)
weights = ",".join(f"{w:.6f}" for w in model.weights[0].numpy().ravel())
print("trained", strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync, weights, flush=True)
"""
    job = write_job(slurm, "tensorflow", interpreter("frameworks/tensorflow"), script)
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    told = [line.split("trained ")[1].split() for line in ended.log.splitlines() if "trained " in line]
    assert sorted(words[0] for words in told) == ["0", "1", "2", "3"], ended.log
    assert {tuple(words[1:]) for words in told} == {("4", told[0][2])}, "one model, the same everywhere"


TRAIN_ON_CPUS = """\
import os
import torch
import lightning
from accelerate import Accelerator

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = lightning.Trainer(max_steps=1, **quiet)
data = torch.utils.data.TensorDataset(torch.randn(32, 4))
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
print("lightning", trainer.global_rank, trainer.world_size, flush=True)
found = Accelerator()
print("accelerate", found.process_index, found.num_processes, flush=True)
torch.distributed.destroy_process_group()  # without it PyTorch may abort at its exit
"""


def test_lightning_and_accelerate_know_the_ranks_on_cpus(slurm: Cluster) -> None:
    """The scripts are what their users write; neither names a number of ranks."""
    job = write_job(slurm, "on-cpus", interpreter("frameworks/lightning"), TRAIN_ON_CPUS)
    ended = run_job(slurm, job)
    assert ended.code == 0, ended.log
    for rank in range(4):
        assert f"lightning {rank} 4" in ended.log, ended.log
        assert f"accelerate {rank} 4" in ended.log, ended.log
    plan = slurm.login(["bareboat", "plan", "-v", job], cwd=job.parent).stdout
    assert "ACCELERATE_USE_CPU=true" in plan
    assert "PL_TRAINER_DEVICES=2, PL_TRAINER_NUM_NODES=2" in plan
