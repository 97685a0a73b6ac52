"""What the user asks of a recipe, on the command line."""

from __future__ import annotations

import re

from msgspec import Struct

from bareboat.gpu.versions import FIRST_DRIVERS
from bareboat.project.recipes import catalogue
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.printable import quoted

FRAMEWORKS = ("torch", "tensorflow", "jax", "none")
FORMATS = {"dockerfile": "Dockerfile", "def": "image.def"}
AUTO, NONE = "auto", "none"

_PYTHON = expression(r"3\.\d{1,2}")


class Choices(Struct, frozen=True, kw_only=True):
    """None: not given. `mpi`: a variant of the catalogue, a family, "auto" or "none"; `cuda`: a version,
    "auto" or "none"."""

    framework: str | None = None
    cuda: str = AUTO
    mpi: str | None = None
    python: str | None = None
    base: str | None = None
    horovod: bool = False
    nccl: bool = False


def check(choices: Choices) -> None:
    """Raise UsageError for values that no recipe can have, and for choices that exclude each other."""
    if choices.python is not None:
        _check_python(choices.python)
    if choices.cuda not in (AUTO, NONE) and choices.cuda not in FIRST_DRIVERS:
        raise UsageError(
            f"--cuda {quoted(choices.cuda)} is not a known version",
            context=f"known: {', '.join(FIRST_DRIVERS)}",
            remedy="--cuda 12.8, --cuda none, or without --cuda: the newest that the site's driver supports",
        )
    if choices.mpi not in (None, AUTO, NONE) and not catalogue.variants(choices.mpi or ""):
        raise UsageError(
            f"--mpi {quoted(choices.mpi or '')} is not known",
            context=f"known: auto, none, openmpi, mpich, {', '.join(each.title for each in catalogue.MPIS)}",
            remedy="--mpi auto",
        )
    if choices.base is not None and (not choices.base or not re.fullmatch(r"[!-~]{1,300}", choices.base)):
        raise UsageError(
            f"--base {quoted(choices.base)} is not the name of an image",
            remedy="--base docker.io/library/debian:bookworm-slim, or the name of an image in the store",
        )
    if choices.horovod:
        _check_horovod(choices)
    if choices.nccl and choices.cuda == NONE:
        raise UsageError("--nccl requires CUDA, and --cuda none was given", remedy="leave one of them out")


def _check_python(python: str) -> None:
    if not _PYTHON.fullmatch(python):
        raise UsageError(f"--python {quoted(python)} is not a version such as 3.11", remedy="--python 3.11")
    if python not in catalogue.PYTHONS:
        raise UsageError(
            f"--python {python} is not supported",
            context=f"supported: {', '.join(catalogue.PYTHONS)}",
            remedy="--python 3.11",
        )


def _check_horovod(choices: Choices) -> None:
    """What Horovod's last release can be compiled with."""
    if choices.framework in ("jax", "none"):
        raise UsageError(
            f"Horovod cannot be used with --framework {choices.framework}",
            remedy="--framework torch or --framework tensorflow",
        )
    if choices.mpi == NONE or (choices.mpi or "").startswith("mpich"):
        raise UsageError(
            f"--horovod is compiled with OpenMPI, and --mpi {choices.mpi} was given",
            remedy="--mpi openmpi",
        )
