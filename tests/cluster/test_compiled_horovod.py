"""Horovod for TensorFlow, compiled inside an image as a site layer, trains on two nodes of a real Slurm.

CI leaves it out, since it takes minutes: make test TESTS='-m compiles'. It fetches from Debian and from
pip's index.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import Ended, pip_finds, run_job
from clusters import Cluster
from environments import site_packages
from tools import installed, output, tool

#: Two cores compile for four minutes.
COMPILE_LIMIT_S = 1800.0


pytestmark = [pytest.mark.compiles, pytest.mark.slow]

#: Each rank trains on data of its own; equal weights at the end show that they trained one model.
TRAIN = """\
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
tf.random.set_seed(hvd.rank())
weights = tf.Variable(tf.random.normal([4, 1]))
hvd.broadcast_variables([weights], root_rank=0)
optimizer = tf.keras.optimizers.SGD(0.1)
for _ in range(30):
    x = tf.random.normal([8, 4])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
    optimizer.apply_gradients(zip(gradients, [weights]))
every = hvd.allgather(tf.transpose(weights)).numpy()
right = bool((every == every[0]).all()) and bool(abs(every - 1).max() < 0.2)
print("trained", hvd.rank(), hvd.size(), hvd.local_rank(), right, "mpi" if hvd.mpi_enabled() else "gloo",
      "on", os.uname().nodename, flush=True)
"""


@pytest.fixture
def rootfs(tmp_path: Path) -> Iterator[Path]:
    """Debian with Python, a compiler and TensorFlow, as a Dockerfile would have it: no Horovod and no MPI."""
    tensorflow = installed("frameworks/tensorflow")
    root, archive = tmp_path / "root", tmp_path / "root.tar"
    packages = "g++,make,python3,python3-dev"
    output(
        tool("mmdebstrap"), "--quiet", "--mode=unshare", "--variant=minbase", f"--include={packages}",
        "bookworm", archive,
    )  # fmt: skip
    root.mkdir()
    output(tool("tar"), "-C", root, "-xf", archive, "--exclude=./dev/*")
    archive.unlink()
    packages_folder = root / "usr/local/lib/python3.11/dist-packages"
    packages_folder.mkdir(parents=True, exist_ok=True)
    tools = ("pip", "setuptools", "pkg_resources", "_distutils", "distutils")  # compiling needs none of them
    wanted = [each for each in site_packages(tensorflow).iterdir() if not each.name.startswith(tools)]
    output("cp", "-r", *wanted, packages_folder)
    yield root
    # Pytest keeps folders of earlier runs, and this one is large.
    shutil.rmtree(root)


def test_horovod_for_tensorflow_is_compiled_in_the_image_and_trains_on_two_nodes(
    slurm: Cluster, rootfs: Path, tmp_path: Path
) -> None:
    """The first `submit` makes the layer, and the next one finds it. The login node has no way out: what is
    missing is brought as the message says."""
    folder = slurm.home / "tensorflow-layered"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    job = folder / "train.toml"
    job.write_text(
        f'image = "rootfs:{rootfs}"\ncommand = ["python3", "train.py"]\nsite_layer = ["horovod"]\n'
        'scheduler = "slurm"\nwalltime_s = 300\n[topology]\nnodes = 2\nranks_per_node = 2\n'
    )
    brought = tmp_path / "brought"
    brought.mkdir()
    with pip_finds(slurm, brought):
        refused = slurm.login(["bareboat", "submit", job], cwd=folder, check=False, timeout_s=COMPILE_LIMIT_S)
        assert refused.returncode != 0
        remedy = re.search("`pip (download .*) --dest DIR (.*)`", refused.stderr)
        assert remedy is not None, refused.stderr
        output(
            installed("frameworks/tensorflow") / "bin" / "pip",
            *shlex.split(remedy[1]),
            "--dest",
            brought,
            *shlex.split(remedy[2]),
        )
        before = slurm.login(["bareboat", "plan", "-v", "--prepare", job], cwd=folder)
        assert "openmpi 5.0.11, horovod 0.28.1 on image" in before.stdout
        assert "compiled in the image" in before.stdout
        assert "srun --mpi=pmix" in before.stdout
        by_srun = run_job(slurm, job, submit_limit_s=COMPILE_LIMIT_S)
    _assert_one_model(by_srun)
    # Without a word to pip: nothing is made any more.
    _assert_one_model(run_job(slurm, job, "--launcher", "mpirun"))
    after = slurm.login(["bareboat", "plan", "-v", job], cwd=folder)
    assert "to be made first" not in after.stdout
    shutil.rmtree(slurm.home / ".local" / "share" / "bareboat")


def _assert_one_model(ended: Ended) -> None:
    print(ended.log)
    assert ended.code == 0, ended.log
    for rank in range(4):
        assert f"trained {rank} 4 {rank % 2} True mpi on c" in ended.log, ended.log
    nodes = {line.split(" on ")[1].strip() for line in ended.log.splitlines() if "trained " in line}
    assert len(nodes) == 2, ended.log
