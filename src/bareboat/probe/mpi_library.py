"""All that a host's libmpi loads: what it needs by name, as the dynamic loader finds it (ld.so(8)), and what
it opens while it runs, its plugins and texts.

Reading a hundred libraries takes a second, so what was found is kept in the store for as long as the library
and the loader's cache are the same files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from bareboat import architectures, codec
from bareboat.errors import StoreError
from bareboat.gpu import elf, ldcache
from bareboat.gpu.tree import Tree
from bareboat.model import DriverFile, HostLibrary, MpiFacts, MpiFamily
from bareboat.mpi.inject import C_LIBRARY, EMPTY_PART
from bareboat.store import Store
from bareboat.versions import numbers

#: Place in the tree -> where it may be, beside the library of the stem. OpenMPI's and PMIx's own
#: `make install`, Debian, Red Hat; wheels have UCX and libfabric in the folder of plugins.
_FOLDERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("lib/openmpi", "libmpi", ("openmpi/lib/openmpi3", "openmpi/lib/openmpi", "openmpi")),
    ("lib/pmix", "libpmix", ("pmix",)),
    ("lib/ucx", "libucs", ("ucx",)),
    ("lib/libfabric", "libfabric", ("libfabric",)),
    ("share/pmix", "libpmix", ("../share/pmix",)),
)
_LIBRARY = re.compile(r"lib(?P<stem>\w[\w+.-]*?)\.so(?:\.\d+)*")

#: Raised when closures are found in another way.
_RECIPE = 1


def complete(mpi: MpiFacts, store: Store, environment: Mapping[str, str]) -> MpiFacts:
    """The facts with what the library loads; as they are for a launcher without a library."""
    if mpi.library is None or mpi.family is MpiFamily.UNKNOWN:
        return mpi
    key = codec.digest([_RECIPE, mpi.library, _stamp(mpi.library), _stamp("/etc/ld.so.cache"),
                        environment.get("LD_LIBRARY_PATH", "")])  # fmt: skip
    path = store.host_library(key.removeprefix("sha256:"))
    with suppress(StoreError):
        return msgspec.structs.replace(mpi, runtime=store.read(path, HostLibrary))
    found = closure(mpi, environment=environment)
    store.write(path, codec.to_json(found))
    return msgspec.structs.replace(mpi, runtime=found)


def closure(
    mpi: MpiFacts, *, environment: Mapping[str, str], root: str = "/", machine: str = ""
) -> HostLibrary:
    """What the library loads. `root`: below which the machine's files are."""
    assert mpi.library is not None
    tree = Tree(root)
    machine = machine or os.uname().machine
    loader = _Loader(tree, environment.get("LD_LIBRARY_PATH", ""), machine)
    libraries: dict[str, str] = {}
    folders: dict[str, str] = {}
    asked: dict[str, set[str]] = {}
    glibc, glibc_by = "", ""
    seen: set[str] = set()
    needed_by_name: set[str] = set()
    libc = tree_path(tree, loader.find("libc.so.6", "/", ()) or "/", root)
    parts_are_empty = libc is not None and "GLIBC_2.34" in elf.read(root.rstrip("/") + libc).gives
    pending = [mpi.library, *_siblings(tree, mpi)]
    while pending:
        path = tree_path(tree, pending.pop(), root)
        if path is None or path in seen:
            continue
        seen.add(path)
        library = elf.read(root.rstrip("/") + path)
        name = library.soname or os.path.basename(path)
        if name.startswith("lib"):
            libraries.setdefault(name, path)
        if library.glibc is not None and numbers(library.glibc) > numbers(glibc):
            glibc, glibc_by = library.glibc, name
        for file, versions in library.asks.items():
            if not C_LIBRARY.fullmatch(file):
                asked.setdefault(file, set()).update(versions)
        for needed in library.needed:
            if EMPTY_PART.fullmatch(needed):
                if parts_are_empty and (found := loader.find(needed, path, library.search)):
                    needed_by_name.add(needed)
                    libraries.setdefault(needed, tree_path(tree, found, root) or found)
            elif not C_LIBRARY.fullmatch(needed) and (found := loader.find(needed, path, library.search)):
                needed_by_name.add(os.path.basename(needed))
                libraries.setdefault(os.path.basename(needed), tree_path(tree, found, root) or found)
                pending.append(found)
        for place, folder in _folders(tree, name, path, mpi, machine):
            if place not in folders:
                folders[place] = folder
                pending += [f"{folder}/{each}" for each in tree.names(folder, "*.so*")]
    # What only plugins are called, they are opened by the path of.
    found_names = sorted(n for n in libraries if n in needed_by_name or re.search(r"\.so\.\d", n))
    return HostLibrary(
        libraries=tuple(DriverFile(name=name, path=libraries[name]) for name in found_names),
        folders=folders,
        asked={name: tuple(sorted(asked[name])) for name in found_names if name in asked},
        glibc=glibc or None,
        glibc_by=glibc_by,
    )


def tree_path(tree: Tree, path: str, root: str) -> str | None:
    """The real path, as the machine names it; None where nothing is."""
    real = tree.real(path)
    return real.removeprefix(root.rstrip("/")) if real is not None else None


def _siblings(tree: Tree, mpi: MpiFacts) -> Iterator[str]:
    """Libraries of the same MPI that programs in Fortran and C++ are linked to, and plugins."""
    folder = os.path.dirname(mpi.library or "")
    for pattern in ("libmpi*.so.*", "libmca_common_*.so.*", "liboshmem.so.*"):
        for name in tree.names(folder, pattern):
            other_abi = mpi.family is MpiFamily.OPENMPI and re.search(r"\.so\.(?:0|1|12)(?:\.|$)", name)
            if not other_abi and not name.startswith("libmpich"):
                yield f"{folder}/{name}"


def _folders(tree: Tree, name: str, path: str, mpi: MpiFacts, machine: str) -> Iterator[tuple[str, str]]:
    """The folders that a library of this name looks into."""
    told = _LIBRARY.fullmatch(name)
    stem = f"lib{told['stem']}" if told is not None else ""
    beside = os.path.dirname(path)
    is_open = mpi.family is MpiFamily.OPENMPI
    for place, of, candidates in _FOLDERS:
        if of != stem or (place == "lib/openmpi" and not is_open):
            continue
        for candidate in candidates:
            folder = os.path.normpath(f"{beside}/{candidate}")
            if tree.is_folder(folder):
                yield place, folder
                break
    if stem == "libmpi" and is_open:
        prefix = mpi.prefix or "/usr"
        own = prefix not in ("/", "/usr")
        for place, candidates in (
            ("share/openmpi", (f"{prefix}/share/openmpi", "/usr/share/openmpi")),
            ("etc", (f"{prefix}/etc",) if own else ("/etc/openmpi", f"/etc/openmpi-{machine}")),
        ):
            found = next((each for each in candidates if tree.is_folder(each)), None)
            if found is not None:
                yield place, found


class _Loader:
    """Finds libraries as the dynamic loader of the machine would."""

    def __init__(self, tree: Tree, library_path: str, machine: str) -> None:
        self._tree = tree
        self._library_path = tuple(each for each in library_path.split(":") if each.startswith("/"))
        self._folders = architectures.library_folders(machine)
        data = tree.read("/etc/ld.so.cache")
        self._cache: dict[str, str] = {}
        with suppress(ValueError):
            for entry in ldcache.parse(data, machine) if data else ():
                self._cache.setdefault(entry.name, entry.path)

    def find(self, name: str, needed_by: str, search: tuple[str, ...]) -> str | None:
        if "/" in name:
            return name if self._tree.is_file(name) else None
        origin = os.path.dirname(needed_by)
        own = [each.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for each in search]
        # Libraries of one installation find each other by the RPATH of whoever loaded them first.
        for folder in (*own, *self._library_path, origin):
            if self._tree.is_file(f"{folder}/{name}"):
                return os.path.normpath(f"{folder}/{name}")
        cached = self._cache.get(name)
        if cached is not None and self._tree.is_file(cached):
            return cached
        return next((f"{f}/{name}" for f in self._folders if self._tree.is_file(f"{f}/{name}")), None)


def _stamp(path: str) -> list[int]:
    with suppress(OSError):
        state = os.stat(path)
        return [state.st_ino, state.st_size, state.st_mtime_ns]
    return []
