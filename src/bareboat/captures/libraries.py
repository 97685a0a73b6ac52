"""The shared libraries that an environment's files need from outside of it."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from bareboat.captures.collect import NOTHING, Collection, Part
from bareboat.captures.interpreter import Interpreter
from bareboat.captures.sources import Sources
from bareboat_base import architectures
from bareboat_base.elf import binary, loader
from bareboat_base.expressions import expression
from bareboat_base.paths import lies_in

#: Loaded by name at run time, so no file lists them as needed: thread cancellation and name services.
#: The others are parts of glibc that files mounted from the host need: the GPU driver, an MPI.
_HIDDEN_LIBRARIES = (
    "libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2",
    "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1",
)  # fmt: skip


class Inventory(Struct, frozen=True, kw_only=True):
    """The content of a capture: all paths with kind and layer, and what was excluded."""

    interpreter: Interpreter
    collection: Collection
    roots: tuple[tuple[str, Part], ...]
    unresolved: tuple[str, ...]
    library_folders: tuple[str, ...]
    program_folders: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        return self.collection.size_bytes

    @property
    def inodes(self) -> int:
        return len(self.collection.items)


def with_libraries(interpreter: Interpreter, sources: Sources) -> Inventory:
    """Add the shared libraries that the collected files need from outside of the environment, directly or
    indirectly."""
    collection = sources.collection
    here = loader.of_machine(os.environ.get("LD_LIBRARY_PATH", ""))
    for soname in _HIDDEN_LIBRARIES:
        path = here.find(soname)
        if path is not None:
            collection.add(path, Part.SYSTEM)
    needs = close(collection, here)
    collection.check_readable()
    for path, part in sources.roots:
        collection.gather(path, part)  # a venv's `python` was first added to the interpreter's layer
    usual = architectures.library_folders(os.uname().machine)
    extra = tuple(folder for folder in needs.folders.searched() if folder not in usual)
    return Inventory(
        interpreter=interpreter,
        collection=collection,
        roots=sources.roots,
        unresolved=tuple(sorted(needs.unresolved)),
        library_folders=extra,
        program_folders=sources.programs,
        variables=sources.variables,
    )


class Needs(Struct, frozen=True):
    """The directories in which needed libraries were found, and those that were not found."""

    folders: Folders
    unresolved: set[str]


def close(
    collection: Collection, here: loader.Loader, seeds: Sequence[str] = (), mounted: Sequence[str] = ()
) -> Needs:
    """Add the libraries that the collected files and the `seeds`, which are not added, need. `mounted`:
    directories whose files are not added, because the container shows them."""
    present = {os.path.basename(path) for path in collection.items}
    seen: set[str] = set()
    found_in = Needs(Folders(), set())
    # Twice for an MPI: its plugins, which no file lists as needed, need libraries too.
    while pending := [*(seed for seed in seeds if seed not in seen), *_programs(collection, seen)]:
        while pending:
            path = pending.pop()
            if path in seen:
                continue
            seen.add(path)
            with binary.opened(path) as elf:
                search = elf.search_path
                wanted = [(soname, here.find(soname, path, search)) for soname in elf.needed]
                if elf.interpreter is not None:
                    wanted.append((elf.interpreter, here.find(elf.interpreter)))
            for soname, found in wanted:
                if found is None:
                    # Another module has often loaded it before, from a path of its own.
                    if os.path.basename(soname) not in present:
                        found_in.unresolved.add(soname)
                    continue
                if any(lies_in(os.path.realpath(found), each) for each in mounted):
                    pending.append(os.path.realpath(found))
                    continue
                real = collection.add(found, Part.SYSTEM)
                if real not in seen:
                    pending.append(real)
                if "/" not in soname and collection.items.get(real, NOTHING).part == Part.SYSTEM:
                    by_name = not any(search) or here.find(soname) == found
                    found_in.folders.add(soname, found, real, by_name=by_name)
        for path in [place for library in sorted(seen) for place in mpi_runtime(library)]:
            collection.add(path, Part.SYSTEM)
        collection.follow_links()
    return found_in


class Folders:
    """Directories of libraries. The image's LD_LIBRARY_PATH contains only those that are right for all files:
    it overrides RUNPATH, by which two files may find two libraries with one name."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._by_name: set[str] = set()
        self._files: dict[str, set[str]] = {}

    def add(self, soname: str, found: str, real: str, *, by_name: bool) -> None:
        """`by_name`: found without the RPATH or RUNPATH of a file."""
        folder = os.path.dirname(found)
        self._names.setdefault(folder, set()).add(soname)
        self._files.setdefault(soname, set()).add(real)
        if by_name:
            self._by_name.add(folder)

    @property
    def by_name(self) -> list[str]:
        """Those that only LD_LIBRARY_PATH or ld.so.cache name."""
        return sorted(self._by_name)

    def searched(self) -> list[str]:
        several = {soname for soname, files in self._files.items() if len(files) > 1}
        alone = {folder for folder, names in self._names.items() if not names & several}
        return sorted(self._by_name | alone)


def _programs(collection: Collection, seen: set[str]) -> list[str]:
    """Files that may need libraries, except those in `seen`."""
    return [
        path
        for path, item in collection.files()
        if item.data is None
        and item.size > 64
        and (item.mode & 0o111 or ".so" in os.path.basename(path))
        and path not in seen
    ]


_LIBRARY = expression(r"libmpi(?:ch)?\.so\.(?P<abi>12|40)(?:\.\d+)*")

#: Relative to the library's directory: plugins of OpenMPI and PMIx, where `make install`, Debian and Red Hat
#: install them.
_BESIDE = (
    "openmpi/lib/openmpi3",
    "openmpi/lib/openmpi",
    "pmix",
    "pmix2/lib",
    "pmix2/share",
    "prte",
    "libfabric",
    "ucx",
)
_SHARED = (
    *(f"share/{name}" for name in ("openmpi", "pmix", "prte")),
    *(f"etc/{name}-mca-params.conf" for name in ("openmpi", "pmix", "prte")),
    *(f"etc/{name}-default-hostfile" for name in ("openmpi", "prte")),
)
_SYSTEM = (
    "/etc/openmpi",
    f"/etc/openmpi-{os.uname().machine}",
    "/etc/pmix",
    "/etc/pmix-mca-params.conf",
    "/etc/prte",
)
_PROGRAMS = {
    "40": ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun", "orted", "prterun", "prte",
           "prted", "ompi_info"),
    "12": ("mpirun", "mpiexec", "mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich", "hydra_pmi_proxy",
           "hydra_bstrap_proxy", "mpichversion"),
}  # fmt: skip


def mpi_runtime(library: str) -> list[str]:
    """The paths that a libmpi, given by its real path, loads by name at run time, so no file lists them as
    needed: plugins, settings, texts; and its launchers. Empty for other files.

    Without /etc/openmpi, Debian's OpenMPI hangs in half of its starts: those settings disable drivers for
    hardware that the machine lacks.
    """
    named = _LIBRARY.fullmatch(os.path.basename(library))
    if named is None:
        return []
    folder = os.path.dirname(library)
    prefix = re.sub(r"/lib(?:64)?(?:/[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*)?(?:/openmpi/lib)?$", "", folder)
    beside = [] if named["abi"] == "12" else [f"{folder}/{name}" for name in _BESIDE]
    if beside and not os.path.isdir(f"{folder}/openmpi/lib"):  # otherwise it contains headers too
        beside.append(f"{folder}/openmpi")
    found = [place for place in beside if os.path.isdir(place)]
    found += glob.glob(f"{folder}/libmca_common_*.so*")
    if named["abi"] == "40":
        found += [f"{prefix}/{name}" for name in _SHARED]
        found += _SYSTEM if prefix == "/usr" else ()
    found += [f"{prefix}/bin/{name}" for name in _PROGRAMS[named["abi"]]]
    return [path for path in dict.fromkeys(found) if os.path.exists(path)]
