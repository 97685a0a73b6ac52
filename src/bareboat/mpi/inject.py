"""What a container gets of a host's MPI library: links, mounts, variables. Pure.

The library often lies among the host's own (Debian's libmpi.so.40 beside libc.so.6). So a directory of links
contains the MPI, its plugins and their dependencies that the image lacks. The host's directories of these
files are mounted beside it, outside every library path: as for GPU drivers (`bareboat.gpu.inject`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from bareboat.model import DriverFile, HostLibrary, HostMpiTree, Mount, MpiFacts, MpiFamily
from bareboat.mpi.rules import Setting
from bareboat_base.expressions import expression
from bareboat_base.paths import lies_in

#: Where the links are in a container, and the parent of the host's directories.
PLACE, HOST = "/run/bareboat/mpi", "/run/bareboat/mpi-host"
LIBRARIES = f"{PLACE}/lib"

#: The C library and its parts: they belong to the image's loader, and never come from elsewhere.
C_LIBRARY = expression(
    r"(?:ld(?:-linux[\w-]*|64)?|lib(?:c|m|mvec|pthread|dl|rt|resolv|util|anl|nsl|BrokenLocale|thread_db|nss_\w+))"
    r"\.so(?:\.\d+)*"
)

#: Parts of it that are empty since glibc 2.34, and that a captured environment may lack.
EMPTY_PART = expression(r"lib(?:pthread|dl|rt|util|anl)\.so\.\d+")


def links(runtime: HostLibrary, left_out: Collection[str] = ()) -> dict[str, str]:
    """The directory of links: name below it -> the link's target in the container. `left_out`: names of
    libraries that the image has itself."""
    sources = _sources(runtime)
    taken = [file for file in runtime.libraries if file.name not in left_out]
    found = {f"lib/{file.name}": _inside(file.path, sources) for file in taken}
    main = next((file for file in taken if re.fullmatch(r"libmpi(?:ch)?\.so\.\d+", file.name)), None)
    if main is not None:  # mpi4py tries libmpi.so first
        found.setdefault(f"lib/{main.name.rpartition('.')[0]}", found[f"lib/{main.name}"])
    return found | {place: _inside(path, sources) for place, path in runtime.folders.items()}


def mounts(runtime: HostLibrary, tree: HostMpiTree) -> tuple[Mount, ...]:
    """The mounts: the links, their targets, and the host's files over the image's own of the same name, which
    a program may open by their path (mpi4py, DT_RPATH)."""
    folders = (Mount(source=path, target=f"{HOST}/{i}") for i, path in enumerate(_sources(runtime)))
    return (Mount(source=tree.folder, target=PLACE), *folders, *tree.over)


def inside(mpi: MpiFacts) -> MpiFacts:
    """The host's MPI with its paths in the container."""
    name = next((f.name for f in _libraries(mpi) if f.name.startswith("libmpi")), "libmpi.so")
    return msgspec.structs.replace(
        mpi, prefix=PLACE, library=f"{LIBRARIES}/{name}", moved=mpi.family is MpiFamily.OPENMPI
    )


def settings(mpi: MpiFacts, given: Mapping[str, str]) -> tuple[Setting, ...]:
    """Settings that make the ranks load the host's library. `given`: the image's environment, or the job's
    over it."""
    why = "the host's library is bound into the image there"
    path = ":".join(filter(None, (LIBRARIES, given.get("LD_LIBRARY_PATH"))))
    found = [Setting(name="LD_LIBRARY_PATH", value=path, reason=why)]
    runtime = mpi.runtime
    if runtime is None:
        return tuple(found)
    for place, name, value in _VARIABLES:
        if place in runtime.folders and (mpi.family is MpiFamily.OPENMPI or name.startswith("FI_")):
            found.append(Setting(name=name, value=f"{PLACE}/{value}", reason=why))
    return tuple(found)


#: A path of the tree -> the variable that points to it. Debian builds OpenMPI and PMIx for directories that
#: do not follow from a prefix.
_VARIABLES = (
    ("lib/openmpi", "OPAL_LIBDIR", "lib"),
    ("lib/openmpi", "OPAL_PKGLIBDIR", "lib/openmpi"),
    ("share/openmpi", "OPAL_DATADIR", "share"),
    ("share/openmpi", "OPAL_PKGDATADIR", "share/openmpi"),
    ("etc", "OPAL_SYSCONFDIR", "etc"),
    ("lib/pmix", "PMIX_LIBDIR", "lib"),
    ("lib/pmix", "PMIX_PKGLIBDIR", "lib/pmix"),
    ("share/pmix", "PMIX_DATADIR", "share"),
    ("share/pmix", "PMIX_PKGDATADIR", "share/pmix"),
    ("lib/libfabric", "FI_PROVIDER_PATH", "lib/libfabric"),
)


def _libraries(mpi: MpiFacts) -> list[DriverFile]:
    return list(mpi.runtime.libraries) if mpi.runtime is not None else []


def _sources(runtime: HostLibrary) -> list[str]:
    """The host's directories, without those inside another."""
    files = (file.path.rpartition("/")[0] for file in runtime.libraries)
    wanted = sorted({*files, *runtime.folders.values()})
    kept: list[str] = []
    for folder in wanted:
        if not any(lies_in(folder, outer) for outer in kept):
            kept.append(folder)
    return kept


def _inside(path: str, sources: list[str]) -> str:
    number, folder = next((i, each) for i, each in enumerate(sources) if lies_in(path, each))
    return f"{HOST}/{number}{path[len(folder.rstrip('/')) :]}"
