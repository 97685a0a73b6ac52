"""Horovod for an image: a suitable wheel if pip finds one, else compiled with the layer's own MPI.

It is compiled in the image, which needs a compiler. Horovod's last release is from 2023; its source is
patched for later versions of PyTorch, TensorFlow and Python (`patch`).
"""

from __future__ import annotations

import itertools
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from bareboat.model import Image, Mount, Site
from bareboat.mpi.site_layer import CXXFLAGS, HOROVOD, PREFIX, frameworks, horovod_edits
from bareboat.site_layer import wheels
from bareboat.site_layer.local_run import job_here, run_here
from bareboat_base.errors import ImageError, PlanError, ToolError
from bareboat_base.expressions import expression
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
#: As GCC and Clang report it, and CMake.
_ERROR = expression(r"(?:^|\s)(?:fatal )?error: |^CMake Error")


def lacking(image: Image, view: View) -> list[str]:
    """What the image lacks to compile Horovod: a compiler, Python's headers."""
    folders = [each for each in image.environment.get("PATH", "/usr/bin:/bin").split(":") if each]
    found = [name for name in _COMPILERS if not any(view.is_file(f"{folder}/{name}") for folder in folders)]
    return found or ([] if _headers(image, view) else ["Python.h"])


def refusal(missing: Sequence[str]) -> PlanError:
    return PlanError(
        "Horovod must be compiled for the site layer, but no compiler is available",
        context=f"the image lacks {', '.join(missing)}",
        remedy="install them in the image (Debian: g++ make python3-dev; captured: compiler = true under "
        f"[capture]), or {_WHEEL}",
    )


#: The remedy where it cannot be compiled.
_WHEEL = "put a wheel compiled in an image with the same PyTorch into DIR: export PIP_FIND_LINKS=DIR"


class Compilation(NamedTuple):
    """Horovod is compiled in `folder`, against the MPI below `prefix`. `everything`: see wheels.fetch."""

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
    job = job_here(
        source,
        (image.python or "python3", "setup.py", "--quiet", "bdist_wheel", "--dist-dir", "dist"),
        _environment(image, tools),
        mounts=(
            Mount(source=str(tools), target=str(tools)),
            Mount(source=str(at.prefix), target=PREFIX),
        ),
    )
    ended = run_here(
        store, image, site, job,
        each_second=lambda wall_s: say(
            f"compiling Horovod in the image: {wall_s:.0f} s (takes some minutes)"
        ),
    )  # fmt: skip
    built = sorted((source / "dist").glob("horovod-*.whl"))
    if ended.exit_code != 0 or not built:
        raise ToolError(
            f"Horovod {HOROVOD} does not compile in the image",
            context=_kept(source / "run.log", ended.said),
            remedy=_WHEEL,
        )
    return built[0]


def _environment(image: Image, tools: Path) -> dict[str, str]:
    cmake = tools / "cmake" / "data" / "bin" / "cmake"
    cmake.chmod(0o755)
    kinds = frameworks(image)
    return {
        "PATH": f"{PREFIX}/bin:{image.environment.get('PATH', '/usr/bin:/bin')}",
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
        "CXXFLAGS": CXXFLAGS,
        "LDFLAGS": f"-Wl,-rpath,{PREFIX}/lib -Wl,--strip-debug",
        # Needed by the wheel's compiler wrapper, which is not at its build path.
        "OPAL_PREFIX": PREFIX,
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


def _kept(log: Path, said: str) -> str:
    """The compiler's first error, or the end of the output, and where the whole output is kept."""
    with tempfile.NamedTemporaryFile(prefix="bareboat-horovod-", suffix=".log", delete=False) as kept:
        with open(log, "rb") as stream:
            shutil.copyfileobj(stream, kept)
        found = _first_error(Path(kept.name))
    return "\n".join([*(found or said.strip().splitlines()[-6:]), f"the whole output: {kept.name}"])


def _first_error(log: Path) -> list[str]:
    """The line of the compiler's first error, with what follows it."""
    with open(log, errors="replace") as stream:
        lines = iter(stream)
        for line in lines:
            if _ERROR.search(line):
                return [line.rstrip()[:400], *(each.rstrip()[:200] for each in itertools.islice(lines, 3))]
    return []
