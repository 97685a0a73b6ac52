"""Survey an image by reading names and files in its layers. No program is executed.

Of the image's metadata (labels, environment variables), only PATH,
PYTHONPATH and LD_LIBRARY_PATH are used: they determine what a program in the image finds first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from bareboat_images.inside import accelerators, fabrics, libraries, mpis, pythons, system
from bareboat_images.inside.libraries import Libraries
from bareboat_images.inside.pythons import Python
from bareboat_images.inside.search import Search
from bareboat_images.layers.view import View
from bareboat_images.model import CudaCompat, FabricLibrary, MpiFacts

#: Commands of C compilers: the usual name, GCC and LLVM.
COMPILERS = ("cc", "gcc", "clang")


class Inside(Struct, frozen=True, kw_only=True):
    """The facts; None or empty if unknown.

    `architecture`: as printed by `uname -m`; `libc`: such as "glibc 2.36" or "musl 1.2.3". `python`: the
    first one on the image's PATH; `frameworks`: those that it can import; `pythons`: all interpreters.
    `cuda`: the newest CUDA in the image, which the driver must support. `mpis`: that of `mpirun` first, then
    in the loader's order; `mpi_users`: packages -> the libraries that they are linked to. `gpu_code`:
    frameworks -> the architectures of their kernels.
    """

    distribution: str | None = None
    architecture: str | None = None
    libc: str | None = None
    glibc: str | None = None
    python: str | None = None
    python_version: str | None = None
    frameworks: dict[str, str] = field(default_factory=dict)
    pythons: tuple[Python, ...] = ()
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    rocm: str | None = None
    cuda_compat: CudaCompat | None = None
    mpis: tuple[MpiFacts, ...] = ()
    mpi_users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fabrics: tuple[FabricLibrary, ...] = ()
    compiler: bool = False
    gpu_code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[tuple[str, str | None]]:
        """What people ask for, by its name; None where the image has none."""
        return [
            ("distribution", self.distribution),
            ("C library", self.libc),
            ("Python", f"{self.python_version}, {self.python}" if self.python else None),
            ("frameworks", ", ".join(f"{name} {version}" for name, version in self.frameworks.items())),
            ("CUDA", self.cuda),
            ("cuDNN", self.cudnn),
            ("NCCL", self.nccl),
            ("ROCm", self.rocm),
            *(
                ("MPI", f"{mpi.title}, {mpi.library}; supports {', '.join(mpi.speaks) or 'none'}")
                for mpi in self.mpis
            ),
            *(
                (
                    "fabric",
                    f"{fabric.name} {fabric.version or '?'}, {fabric.path}"
                    + (f"; supports {', '.join(fabric.parts)}" if fabric.parts else ""),
                )
                for fabric in self.fabrics
            ),
        ]


def look(layers: Sequence[Path], *, environment: Mapping[str, str] | None = None) -> Inside:
    """Survey an image from its unpacked layers, bottom first.

    `environment`: the environment variables of the image's config. Damaged and special files are ignored;
    they raise no error.
    """
    search = Search(View(layers), environment or {})
    found = libraries.find(search)
    distribution = system.distribution(search)
    architecture = system.architecture(search)
    libc = system.libc(search)
    importing = tuple(pythons.find(search))
    nccl = accelerators.library(search, found, "nccl", parts=3)
    return Inside(
        distribution=distribution,
        architecture=architecture,
        libc=libc,
        glibc=libc.removeprefix("glibc ") if libc and libc.startswith("glibc ") else None,
        python=importing[0].path if importing else None,
        python_version=importing[0].version if importing else None,
        frameworks=importing[0].frameworks if importing else {},
        pythons=importing,
        cuda=accelerators.cuda(search, found),
        cudnn=accelerators.library(search, found, "cudnn", parts=3),
        nccl=nccl,
        rocm=accelerators.rocm(search),
        cuda_compat=accelerators.cuda_compat(search),
        mpis=mpis.find(search.view, found, search.path),
        mpi_users=mpis.users(search.view, tuple(dict.fromkeys(search.package_folders))),
        fabrics=tuple(_fabrics(search, found, nccl)),
        compiler=any(map(search.has, COMPILERS)),
        gpu_code=dict(accelerators.kernels(search)),
        notes=tuple(
            f"{path} cannot be read: what is in it is not known"
            for path in dict.fromkeys(search.view.unreadable)
        ),
    )


def _fabrics(search: Search, found: Libraries, nccl: str | None) -> Iterator[FabricLibrary]:
    for library in fabrics.find(search.view, found, nccl):
        version = library.version
        if library.name == "UCX":
            version = _package_version(search, library.path, "ucx")
        elif library.name == "libfabric":
            version = _package_version(search, library.path, "libfabric") or version
        yield msgspec.structs.replace(library, version=version)


def _package_version(search: Search, path: str, package: str) -> str | None:
    """The version in the library's pkg-config file."""
    folder = path.rpartition("/")[0]
    stated = re.search(
        r"^Version:\s*(\d[\w.]{0,20})", search.text(f"{folder}/pkgconfig/{package}.pc") or "", re.MULTILINE
    )
    return stated[1] if stated else None
