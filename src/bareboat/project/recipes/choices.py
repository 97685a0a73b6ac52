"""What the user asks of a recipe, on the command line."""

from __future__ import annotations

from msgspec import Struct

from bareboat.gpu.versions import FIRST_DRIVERS
from bareboat.project.recipes import catalogue
from bareboat_base.errors import UsageError
from bareboat_base.printable import quoted

FRAMEWORKS = ("torch", "tensorflow", "jax", "none")
AUTO, NONE = "auto", "none"


class Choices(Struct, frozen=True, kw_only=True):
    """None: not given. `mpi`: a variant of the catalogue, a family, "auto" or "none"; `cuda`: a version,
    "auto" or "none"."""

    framework: str | None = None
    cuda: str = AUTO
    mpi: str | None = None
    horovod: bool = False


def check(choices: Choices) -> None:
    """Raise UsageError for values that no recipe can have, and for choices that exclude each other."""
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
    if choices.horovod:
        _check_horovod(choices)


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
