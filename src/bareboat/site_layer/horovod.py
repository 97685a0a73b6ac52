"""Horovod for an image: a suitable wheel if pip finds one, else compiled with the layer's own MPI.

It is compiled in the image if that has a compiler, else on this machine if the image's environment was
captured from here and still exists. Horovod's last release is from 2023; its source is patched for later
versions of PyTorch, TensorFlow and Python (`patch`).
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from msgspec import Struct

from bareboat import registry
from bareboat.model import Image, Mount, Site
from bareboat.mpi.site_layer import HOROVOD, PREFIX, frameworks, horovod_edits
from bareboat.site_layer import wheels
from bareboat.site_layer.local_run import job_here, run_here
from bareboat_base import execute
from bareboat_base.errors import ImageError, PlanError, ToolError
from bareboat_images.layers.view import View
from bareboat_images.store import Store

#: Later versions lack features of setuptools and CMake that Horovod's build uses.
SETUPTOOLS = "setuptools==75.8.0"
CMAKE = "cmake==3.25.2"

#: The requirements for compiling, as arguments of `pip download`.
TO_COMPILE = ("--no-binary=horovod", f"horovod=={HOROVOD}", SETUPTOOLS, CMAKE)

#: What Horovod imports at run time -> the distribution that has it. Missing ones are added from wheels.
NEEDS = {"cloudpickle": "cloudpickle", "psutil": "psutil", "yaml": "pyyaml", "packaging": "packaging"}

_COMPILERS = ("c++", "make")


class Where(StrEnum):
    """Where Horovod is compiled."""

    IMAGE = "in the image"
    HERE = "on this machine, with the image's captured environment"


class Toolchain(Struct, frozen=True, kw_only=True):
    """Where it can be compiled; otherwise, what is missing."""

    where: Where | None
    lacking: str = ""


def toolchain(image: Image, view: View) -> Toolchain:
    """Find a compiler and Python's headers for the image's environment."""
    folders = [each for each in image.environment.get("PATH", "/usr/bin:/bin").split(":") if each]
    lacking = [name for name in _COMPILERS if not any(view.is_file(f"{folder}/{name}") for folder in folders)]
    if not lacking and not _headers(image, view):
        lacking.append("Python.h")
    if not lacking:
        return Toolchain(where=Where.IMAGE)
    here = _lacking_here(image)
    if not here:
        return Toolchain(where=Where.HERE)
    return Toolchain(where=None, lacking=f"the image lacks {', '.join(lacking)}; on this machine {here}")


def refusal(found: Toolchain) -> PlanError:
    return PlanError(
        "Horovod must be compiled for the site layer, but no compiler is available",
        context=found.lacking,
        remedy="install them in the image (Debian: g++ make python3-dev), or use a wheel "
        "compiled in an image with the same PyTorch: bareboat image layer IMAGE --with horovod --wheel FILE",
    )


class Compilation(NamedTuple):
    """Where Horovod is compiled: in `folder`, against the MPI below `prefix`. `everything`: see
    wheels.fetch."""

    where: Where
    prefix: Path
    folder: Path
    everything: Sequence[str]


def build(store: Store, image: Image, site: Site, at: Compilation, say: Callable[[str], None]) -> Path:
    """Compile Horovod; its wheel. Raises ToolError."""
    say("downloading Horovod's source")
    source, tools = at.folder / "source", at.folder / "tools"
    for tool in (SETUPTOOLS, CMAKE):
        wheels.unpack(wheels.fetch_any(tool, at.folder, at.everything), tools, tools)
    requirement = f"horovod=={HOROVOD}"
    _extract(wheels.fetch_source(requirement, at.folder, tools=tools, everything=at.everything), source)
    patch(source, image)
    here = at.where is Where.HERE
    job = job_here(
        source,
        (image.python or "python3", "setup.py", "--quiet", "bdist_wheel", "--dist-dir", "dist"),
        _environment(image, at, tools),
        engine=registry.BARE_METAL if here else None,
        mounts=(
            Mount(source=str(tools), target=str(tools)),
            *(() if here else (Mount(source=str(at.prefix), target=PREFIX),)),
        ),
    )
    ended = run_here(
        store, image, site, job,
        each_second=lambda wall_s: say(
            f"compiling Horovod {at.where.value}: {wall_s:.0f} s (takes some minutes)"
        ),
    )  # fmt: skip
    built = sorted((source / "dist").glob("horovod-*.whl"))
    if ended.exit_code != 0 or not built:
        raise ToolError(
            f"Horovod {HOROVOD} does not compile {at.where.value}",
            context=_tail(ended.said),
            remedy="use a wheel that was compiled elsewhere: "
            "bareboat image layer IMAGE --with horovod --wheel FILE",
        )
    return built[0]


def _environment(image: Image, at: Compilation, tools: Path) -> dict[str, str]:
    cmake = tools / "cmake" / "data" / "bin" / "cmake"
    cmake.chmod(0o755)
    here = at.where is Where.HERE
    seen = str(at.prefix) if here else PREFIX
    path = os.environ.get("PATH", "") if here else image.environment.get("PATH", "/usr/bin:/bin")
    kinds = frameworks(image)
    return {
        "PATH": f"{seen}/bin:{path}",
        "PYTHONPATH": str(tools),
        "HOROVOD_CMAKE": str(cmake),
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        **{
            f"HOROVOD_{'WITH' if kind in kinds else 'WITHOUT'}_{name}": "1"
            for kind, name in (("torch", "PYTORCH"), ("tensorflow", "TENSORFLOW"))
        },
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
        # OpenMPI's C interface is the same from 3.0 to 5.0; its C++ bindings were removed in 5.0.
        "CXXFLAGS": "-DOMPI_SKIP_MPICXX",
        "LDFLAGS": f"-Wl,-rpath,{PREFIX}/lib -Wl,--strip-debug",
        # Needed by the wheel's compiler wrapper, which is not at its build path.
        "OPAL_PREFIX": seen,
    }


def patch(source: Path, image: Image) -> None:
    """Patch the source for changes since 2023."""
    for name, old, new in horovod_edits(image.frameworks):
        file = source / name
        text = file.read_text()
        if old not in text:
            raise ImageError(
                f"{name} does not match Horovod {HOROVOD}",
                context=f"it does not contain {old!r}",
                remedy="check which horovod pip's index serves",
            )
        file.write_text(text.replace(old, new))


def check_program(image: Image) -> str:
    """A program that exits with 0 when Horovod can be imported in the image and has MPI."""
    lines = []
    for each in frameworks(image):
        lines.append(f"import horovod.{each} as hvd")
        lines.append("assert hvd.mpi_built(), 'it was built without MPI'")
    return "\n".join(lines)


def _headers(image: Image, view: View) -> bool:
    prefix = (image.python or "/usr/bin/python3").rpartition("/bin/")[0]
    minor = ".".join((image.python_version or "3").split(".")[:2])
    real = view.find(image.python or "/usr/bin/python3")
    prefixes = [prefix, real.path.rpartition("/bin/")[0] if real is not None else prefix, "/usr"]
    return any(view.is_file(f"{each}/include/python{minor}/Python.h") for each in prefixes)


_ASK = """\
import importlib.metadata as m, os, sys, sysconfig
names = ("torch", "tensorflow", "tensorflow-cpu")
found = [sys.version.split()[0], str(os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))]
for name in names:
    try:
        found.append(name + "=" + m.version(name))
    except m.PackageNotFoundError:
        pass
print(";".join(found))
"""


def _lacking_here(image: Image) -> str:
    """Why Horovod cannot be compiled on this machine for the image; "" where it can."""
    if not image.prefixes or image.python is None or not os.access(image.python, os.X_OK):
        return "the image's Python environment does not exist"
    outcome = execute.run([image.python, "-I", "-c", _ASK], timeout_s=execute.patience(execute.START_S))
    told = outcome.stdout.strip().split(";")
    if not outcome.ok or len(told) < 2:
        return f"{image.python} does not start"
    versions = dict(each.split("=") for each in told[2:])
    known = {name.replace("_", "-"): version for name, version in image.frameworks.items()}
    wanted = {name: known[name] for name in ("torch", "tensorflow", "tensorflow-cpu") if name in known}
    if told[0] != image.python_version or any(versions.get(name) != v for name, v in wanted.items()):
        return f"{image.python} has other versions than the image"
    missing = [name for name in _COMPILERS if execute.which(name) is None]
    if told[1] != "True":
        missing.append("Python.h")
    return f"missing: {', '.join(missing)}" if missing else ""


def _extract(archive: Path, target: Path) -> None:
    """Unpack files and directories without the common top directory. (Python 3.11.2 has no tarfile
    filters.)"""
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                parts = PurePosixPath(member.name).parts
                if member.name.startswith("/") or ".." in parts:
                    raise ImageError(
                        f"{archive.name} contains {member.name!r}, which is outside of its directory",
                        remedy="download it again",
                    )
                content = opened.extractfile(member) if member.isfile() else None
                if content is not None:
                    path = target.joinpath(*parts[1:])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
                    path.chmod(0o755 if member.mode & 0o100 else 0o644)
    except (tarfile.TarError, EOFError) as error:
        raise ImageError(
            f"{archive.name} cannot be unpacked", context=str(error), remedy="download it again"
        ) from None


def _tail(said: str) -> str:
    """The error, which precedes make's last lines."""
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return "\n".join([*errors[:6], *lines[-6:]])
