"""What `init` reads in Python source: imports, arguments, how ranks are started."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat.project import code, scripts, world

#: Scripts as their users write them -> framework, and the launchers that fit.
SCRIPTS = {
    "import torch.distributed as dist\ndist.init_process_group('gloo')": ("PyTorch", ("torchrun",)),
    "from torch.distributed import init_process_group\ninit_process_group()": ("PyTorch", ("torchrun",)),
    "import torch\ntorch.distributed.init_process_group()": ("PyTorch", ("torchrun",)),
    "from torch.nn.parallel import DistributedDataParallel as DDP": ("PyTorch", ("torchrun",)),
    "from torch.distributed.fsdp import fully_shard": ("PyTorch", ("torchrun",)),
    "import lightning as L\nL.Trainer(max_epochs=3)": ("Lightning", ("torchrun",)),
    "import pytorch_lightning as pl\npl.Trainer()": ("Lightning", ("torchrun",)),
    "from lightning.pytorch import Trainer\nTrainer()": ("Lightning", ("torchrun",)),
    "import lightning\nclass Model(lightning.LightningModule): pass": ("Lightning", ()),
    "from accelerate import Accelerator\nAccelerator()": ("Accelerate", ("torchrun",)),
    "import deepspeed\ndeepspeed.init_distributed()": ("DeepSpeed", ("torchrun",)),
    "from transformers import Trainer": ("Transformers", ("torchrun",)),
    "import horovod.torch as hvd\nhvd.init()": ("Horovod", (*world.MPI, "horovod")),
    "import horovod.tensorflow.keras as hvd\nhvd.init()": ("Horovod", (*world.MPI, "horovod")),
    "from mpi4py import MPI\nMPI.COMM_WORLD.Get_rank()": ("mpi4py", world.MPI),
    "import mpi4py.MPI\ncomm = mpi4py.MPI.COMM_WORLD": ("mpi4py", world.MPI),
    "from mpi4py.futures import MPIPoolExecutor": ("mpi4py", world.MPI),
    "import jax\njax.distributed.initialize()": ("JAX", ("jax", "srun")),
    "import keras\nkeras.distribution.initialize()": ("Keras", ("jax", "srun")),
    "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()": ("TensorFlow", ("tensorflow",)),
    "import os, json, tensorflow as tf\nos.environ['TF_CONFIG'] = json.dumps({})": (
        "TensorFlow",
        ("tensorflow",),
    ),
    "import os\nprint(os.environ['SLURM_PROCID'])": ("Python", ("srun",)),
    "import os\nrank = int(os.getenv('RANK', 0))": (
        "Python",
        ("torchrun", "srun", "jax", "tensorflow", "ranks"),
    ),
    "import torch\nprint(torch.ones(3))": ("PyTorch", ()),
    "import jax\njax.jit(print)": ("JAX", ()),
    "from sklearn.svm import SVC\nSVC()": ("scikit-learn", ()),
    "print('x')": ("Python", ()),
    # Names of its own, which only look like a framework's.
    "def init_process_group(): pass\ninit_process_group()": ("Python", ()),
    "class MPI: COMM_WORLD = 1\nMPI.COMM_WORLD": ("Python", ()),
}


@pytest.mark.parametrize(("source", "found"), SCRIPTS.items())
def test_how_a_script_starts_its_ranks(source: str, found: tuple[str, tuple[str, ...]]) -> None:
    judged = world.judge(code.read(source.encode()))
    assert (judged.framework, judged.launchers) == found


def test_a_script_that_starts_its_ranks_itself_is_one_process() -> None:
    source = (
        "import torch.multiprocessing as mp\nimport torch.distributed as dist\n"
        "def work(rank): dist.init_process_group('nccl', rank=rank)\nmp.spawn(work, nprocs=4)\n"
    )
    judged = world.judge(code.read(source.encode()))
    assert judged.launchers == ()
    assert judged.per_node
    assert "torch.multiprocessing.spawn" in judged.reason


def test_devices_of_one_process() -> None:
    source = b"import tensorflow as tf\ntf.distribute.MirroredStrategy()\n"
    judged = world.judge(code.read(source))
    assert (judged.launchers, judged.per_node, judged.uses_gpus) == ((), True, True)


ARGUMENTS = b"""
import argparse, os, signal, sys
import click
from absl import flags
REQUEUE = 75
parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("files", nargs="*")
parser.add_argument("-e", "--epochs", type=int, default=3, help="number of\\nepochs")
parser.add_argument("--data", required=True)
parser.add_argument("--out", default=os.path.join("a", "b"))
group = parser.add_argument_group()
group.add_argument("--fast", action="store_true")
flags.DEFINE_integer("steps", 10, "how many steps")
signal.signal(signal.SIGUSR1, print)
os.environ.get("DATA_DIR"); os.environ["HF_TOKEN"]; os.getenv("SEED"); "X_SET" in os.environ
sys.exit(REQUEUE)
open("/data/set/images")
datasets.MNIST("x", download=True)
try:
    import apex
except ImportError:
    pass
def plot():
    import matplotlib.pyplot
if __name__ == "__main__":
    main()
"""


def test_arguments_variables_and_exit_codes() -> None:
    found = code.read(ARGUMENTS)
    each = {argument.name: argument for argument in found.arguments}
    assert list(each) == ["config", "files", "--epochs", "--data", "--out", "--fast", "--steps"]
    assert [name for name, argument in each.items() if argument.required] == ["config", "--data"]
    assert (each["--epochs"].default, each["--epochs"].help) == ("3", "number of epochs")
    assert each["--out"].default == "os.path.join('a', 'b')"
    assert each["--out"].text is None
    assert each["--steps"].default == "10"
    assert found.environment == {"DATA_DIR", "HF_TOKEN", "SEED", "X_SET"}
    assert found.exit_codes == {75}
    assert found.paths == {"/data/set/images"}
    assert found.downloads
    assert found.needed == {"argparse", "os", "signal", "sys", "click", "absl"}
    assert {"apex", "matplotlib"} <= found.packages
    assert found.has_main
    assert "signal.SIGUSR1" in found.names


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (b"print('x'\n", "line 1: '(' was never closed"),
        (b"x = '\xe9'\n", "invalid or missing encoding declaration"),
        (b"x = 1\n\ny = '\xe9'\n", "line 3: not in utf-8"),
        (b"# -*- coding: no-such -*-\n", "unknown encoding"),
        (b"x = 1\0\n", "null bytes"),
        (b"(" * 5000 + b")" * 5000, ""),
        (b"-" * 100_000 + b"1", ""),
    ],
)
def test_source_that_is_not_python_has_a_fault(source: bytes, fault: str) -> None:
    found = code.read(source)
    assert found.fault
    assert fault in found.fault
    assert world.judge(found).launchers == ()


def test_other_encodings_are_read() -> None:
    assert not code.read(b"# coding: latin-1\nx = '\xe9'\n").fault
    assert code.read(b"\xef\xbb\xbfimport torch\n").packages == {"torch"}


@given(st.binary(max_size=300))
def test_any_bytes_are_read(source: bytes) -> None:
    code.read(source)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python train.py", "train.py"),
        ("python3 -u src/train.py -x", "src/train.py"),
        ("./train.py", "./train.py"),
        ("python -m train", None),
        ("python -c pass", None),
        ("./solver x.py", None),
        ("python", None),
    ],
)
def test_the_script_of_a_command(line: str, script: str | None) -> None:
    assert scripts.of_command(line.split()) == script
