"""The gallery: examples to copy, one directory each, with a job file, a program and a README."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from msgspec import Struct

from bareboat_base.errors import UsageError
from bareboat_base.files import outputs
from bareboat_base.nearest import nearest


class Example(Struct, frozen=True, kw_only=True):
    """An example: what it shows, what must be installed for it, and the commands that install it."""

    name: str
    meaning: str
    needs: str
    install: str = "pip install -r requirements.txt"


EXAMPLES = (
    Example(name="pytorch-ddp", meaning="PyTorch, data-parallel", needs="torch"),
    Example(name="pytorch-fsdp", meaning="PyTorch, sharded weights (FSDP2)", needs="torch"),
    Example(name="lightning", meaning="Lightning, data-parallel", needs="lightning"),
    Example(name="accelerate", meaning="Hugging Face Accelerate", needs="accelerate"),
    Example(name="keras", meaning="Keras 3 on JAX, data-parallel", needs="keras, jax"),
    Example(name="jax", meaning="JAX, data-parallel", needs="jax"),
    Example(
        name="tensorflow-multiworker",
        meaning="TensorFlow, MultiWorkerMirroredStrategy",
        needs="tensorflow 2.15",
    ),
    Example(
        name="horovod",
        meaning="Horovod with PyTorch, over MPI",
        needs="horovod, torch",
    ),
    Example(name="mpi4py", meaning="a simulation in Python with MPI", needs="mpi4py, an MPI"),
    Example(name="c-mpi", meaning="a C program with MPI", needs="an MPI, make", install="make"),
    Example(name="r", meaning="an R script on several ranks", needs="R", install=""),
    Example(name="sweep", meaning="one script at many points", needs="numpy"),
    Example(name="preemptible", meaning="a long run with checkpoints and requeue", needs="torch"),
    Example(name="batch-inference", meaning="a model applied to many files", needs="numpy"),
)


def find(name: str) -> Example:
    """The example of this name. Raises UsageError for an unknown one."""
    found = next((example for example in EXAMPLES if example.name == name), None)
    if found is None:
        near = nearest(name, [example.name for example in EXAMPLES])
        raise UsageError(
            f"no example {name!r}" + (f"; did you mean {near!r}?" if near else ""),
            context="examples: " + ", ".join(example.name for example in EXAMPLES),
            remedy=f"bareboat init --example {near}" if near else "bareboat init --example",
        )
    return found


def files(example: Example) -> dict[str, bytes]:
    """The example's files, by their names."""
    folder = resources.files(__package__).joinpath(example.name)
    return {name: file.read_bytes() for name, file in sorted(_files(folder))}


def _files(folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_file() and not each.name.endswith(".pyc"):
            yield each.name, each


def check(directory: str, other: str = "") -> Path:
    """The absolute path of a directory to create, or of an empty one. `other`: the command that gives another
    name. Raises UsageError when it cannot be created, or has files."""
    path = Path(os.path.abspath(directory)) if directory else None
    if path is not None and os.path.isdir(path) and not path.is_symlink():
        outputs.check(path / "job.toml")
        if any(path.iterdir()):
            raise UsageError(
                f"{path} is not empty",
                remedy=other or f"name a new directory, for example {shlex.quote(f'{path}-2')}",
            )
        return path
    return outputs.check(directory, is_folder=True, other=other)


def copy(example: Example, target: Path) -> None:
    """Copy the example to the directory `target`, completely or not at all. Raises what `check` and the file
    system raise."""
    check(str(target))
    with outputs.beside(target) as part:  # the rename fails for a directory that has files
        part.mkdir()
        for name, content in files(example).items():
            (part / name).write_bytes(content)
