"""What `init` reads in Python source: imports, arguments, how ranks are started."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat import python_source
from bareboat.project import world
from bareboat.session.drafting import _script_of

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
    "import horovod.torch as hvd\nhvd.init()": ("Horovod", world.MPI),
    "import horovod.tensorflow.keras as hvd\nhvd.init()": ("Horovod", world.MPI),
    "from mpi4py import MPI\nMPI.COMM_WORLD.Get_rank()": ("mpi4py", world.MPI),
    "import mpi4py.MPI\ncomm = mpi4py.MPI.COMM_WORLD": ("mpi4py", world.MPI),
    "from mpi4py.futures import MPIPoolExecutor": ("mpi4py", world.MPI),
    "import jax\njax.distributed.initialize()": ("JAX", ("jax", "srun")),
    "import keras\nkeras.distribution.initialize()": ("Keras", ("jax", "srun")),
    "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()": ("TensorFlow", ("tensorflow",)),
    "import os, json, tensorflow as tf\njson.loads(os.environ['TF_CONFIG'])": (
        "TensorFlow",
        ("tensorflow",),
    ),
    "import os\nprint(os.environ['SLURM_PROCID'])": ("Python", ("srun",)),
    "import torch.distributed as dist, os\ndist.init_process_group(rank=int(os.environ['SLURM_PROCID']))": (
        "PyTorch",
        ("srun",),
    ),
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
    judged = world.judge(python_source.parse(source.encode(), uses=True))
    assert (judged.framework, judged.launchers) == found


def test_a_script_that_starts_its_ranks_itself_is_one_process() -> None:
    source = (
        "import torch.multiprocessing as mp\nimport torch.distributed as dist\n"
        "def work(rank): dist.init_process_group('nccl', rank=rank)\nmp.spawn(work, nprocs=4)\n"
    )
    judged = world.judge(python_source.parse(source.encode(), uses=True))
    assert judged.launchers == ()
    assert judged.per_node
    assert "torch.multiprocessing.spawn" in judged.reason


SOURCE = b"""
import os, signal
from sys import (
    argv,
    path,
)
import a.b as c
from . import near
from ..far import it
try:
    import apex
except ImportError:
    pass
def plot():
    import matplotlib.pyplot
if __name__ == "__main__":
    c.main()
"""


def test_imports_and_names() -> None:
    found = python_source.parse(SOURCE, uses=True)
    each = {(each.level, each.module): each for each in found.imports}
    assert list(each) == [
        (0, "os"), (0, "signal"), (0, "sys"), (0, "a.b"), (1, ""), (2, "far"), (0, "apex"),
        (0, "matplotlib.pyplot"),
    ]  # fmt: skip
    assert (each[0, "sys"].names, each[0, "sys"].line) == (("argv", "path"), 3)
    assert [module for (_, module), one in each.items() if not one.is_outer] == ["apex", "matplotlib.pyplot"]
    assert [module for (_, module), one in each.items() if one.is_certain] == ["os", "signal", "sys"]
    assert found.packages == {"os", "signal", "sys", "a", "apex", "matplotlib"}
    assert {"a.b.main", "sys.path"} <= found.names


def test_a_file_is_read_again_once_it_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import one\n")
    assert python_source.read(file).packages == {"one"}
    file.write_text("import two, three\n")
    assert python_source.read(file).packages == {"two", "three"}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (b"print('x'\n", "line 1: '(' was never closed"),
        (b"x = '\xe9'\n", "invalid or missing encoding declaration"),
        (b"x = 1\n\ny = '\xe9'\n", "can't decode byte 0xe9"),
        (b"# -*- coding: no-such -*-\n", "unknown encoding"),
        (b"x = 1\0\n", "null bytes"),
        (b"(" * 5000 + b")" * 5000, ""),
        (b"-" * 100_000 + b"1", ""),
    ],
)
def test_source_that_is_not_python_has_a_fault(source: bytes, fault: str) -> None:
    found = python_source.parse(source, uses=True)
    assert found.fault
    assert fault in found.fault
    assert world.judge(found).launchers == ()


def test_other_encodings_are_read() -> None:
    assert not python_source.parse(b"# coding: latin-1\nx = '\xe9'\n", uses=True).fault
    assert python_source.parse(b"\xef\xbb\xbfimport torch\n", uses=True).packages == {"torch"}


@given(st.binary(max_size=300))
def test_any_bytes_are_read(source: bytes) -> None:
    python_source.parse(source, uses=True)


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
    assert _script_of(line.split()) == script
