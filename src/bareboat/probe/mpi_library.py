"""All files that a host's libmpi loads: libraries that it needs by name, as the dynamic loader finds them
(ld.so(8)), and what it opens at run time, its plug-ins and texts.

Reading a hundred libraries takes a second, so the result is stored for as long as the library and the
loader's cache are unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from bareboat.model import DriverFile, HostLibrary, MpiFacts, MpiFamily
from bareboat.mpi.inject import C_LIBRARY, EMPTY_PART
from bareboat_base import codec
from bareboat_base.elf import binary
from bareboat_base.elf.loader import CACHE, Loader
from bareboat_base.errors import StoreError
from bareboat_base.expressions import expression
from bareboat_base.files.root import Root
from bareboat_base.versions import numbers
from bareboat_images.store import Store

#: Place in the tree -> candidates relative to the library of the stem. OpenMPI's and PMIx's own
#: `make install`, Debian, Red Hat; wheels have UCX and libfabric in the directory of plugins.
_FOLDERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("lib/openmpi", "libmpi", ("openmpi/lib/openmpi3", "openmpi/lib/openmpi", "openmpi")),
    ("lib/pmix", "libpmix", ("pmix",)),
    ("lib/ucx", "libucs", ("ucx",)),
    ("lib/libfabric", "libfabric", ("libfabric",)),
    ("share/pmix", "libpmix", ("../share/pmix",)),
)
_LIBRARY = expression(r"lib(?P<stem>\w[\w+.-]*?)\.so(?:\.\d+)*")

#: Incremented when the search changes.
_RECIPE = 2


def complete(mpi: MpiFacts, store: Store, environment: Mapping[str, str]) -> MpiFacts:
    """The facts with the files that the library loads; unchanged for a launcher without a library."""
    if mpi.library is None or mpi.family is MpiFamily.UNKNOWN:
        return mpi
    key = codec.digest([_RECIPE, mpi.library, _stamp(mpi.library), _stamp(CACHE),
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
    """The files that the library loads. `root`: the root of the machine's files."""
    assert mpi.library is not None
    tree = Root(root)
    machine = machine or os.uname().machine
    loader = _loader(tree, machine, environment, root)
    libraries: dict[str, str] = {}
    folders: dict[str, str] = {}
    asked: dict[str, set[str]] = {}
    glibc, glibc_by = "", ""
    seen: set[str] = set()
    needed_by_name: set[str] = set()
    parts_are_empty = _parts_are_empty(tree, loader, root)

    def note(needed: str, found: str) -> None:
        needed_by_name.add(needed)
        libraries.setdefault(needed, tree_path(tree, found, root) or found)

    pending = [mpi.library, *_siblings(tree, mpi)]
    while pending:
        path = tree_path(tree, pending.pop(), root)
        if path is None or path in seen:
            continue
        seen.add(path)
        with binary.opened(root.rstrip("/") + path) as elf:
            name = elf.soname or os.path.basename(path)
            if name.startswith("lib"):
                libraries.setdefault(name, path)
            if numbers(elf.glibc or "") > numbers(glibc):
                glibc, glibc_by = elf.glibc or "", name
            for file, versions in elf.asks.items():
                if not C_LIBRARY.fullmatch(file):
                    asked.setdefault(file, set()).update(versions)
            for needed in elf.needed:
                if EMPTY_PART.fullmatch(needed):
                    if parts_are_empty and (found := loader.find(needed, path, elf.search_path)):
                        note(needed, found)
                elif not C_LIBRARY.fullmatch(needed) and (
                    found := loader.find(needed, path, elf.search_path)
                ):
                    note(os.path.basename(needed), found)
                    pending.append(found)
        for place, folder in _folders(tree, name, path, mpi, machine):
            if place not in folders:
                folders[place] = folder
                pending += [f"{folder}/{each}" for each in tree.names(folder, "*.so*")]
    # Plug-ins are opened by path, not by name.
    found_names = sorted(n for n in libraries if n in needed_by_name or re.search(r"\.so\.\d", n))
    return HostLibrary(
        libraries=tuple(DriverFile(name=name, path=libraries[name]) for name in found_names),
        folders=folders,
        asked={name: tuple(sorted(asked[name])) for name in found_names if name in asked},
        glibc=glibc or None,
        glibc_by=glibc_by,
    )


def _loader(tree: Root, machine: str, environment: Mapping[str, str], root: str) -> Loader:
    return Loader(
        machine,
        real=lambda path: tree_path(tree, path, root) if tree.is_file(path) else None,
        cache=tree.read(CACHE),
        library_path=environment.get("LD_LIBRARY_PATH", ""),
        siblings=True,
    )


def _parts_are_empty(tree: Root, loader: Loader, root: str) -> bool:
    """Whether the C library has all that libpthread and others had before its version 2.34."""
    libc = tree_path(tree, loader.find("libc.so.6") or "/", root)
    with binary.opened(root.rstrip("/") + (libc or "")) as elf:
        return "GLIBC_2.34" in elf.gives


def tree_path(tree: Root, path: str, root: str) -> str | None:
    """The real path on the machine; None when it does not exist."""
    real = tree.real(path)
    return real.removeprefix(root.rstrip("/")) if real is not None else None


def _siblings(tree: Root, mpi: MpiFacts) -> Iterator[str]:
    """Libraries of the same MPI that programs in Fortran and C++ are linked to, and plugins."""
    folder = os.path.dirname(mpi.library or "")
    for pattern in ("libmpi*.so.*", "libmca_common_*.so.*", "liboshmem.so.*"):
        for name in tree.names(folder, pattern):
            other_abi = mpi.family is MpiFamily.OPENMPI and re.search(r"\.so\.(?:0|1|12)(?:\.|$)", name)
            if not other_abi and not name.startswith("libmpich"):
                yield f"{folder}/{name}"


def _folders(tree: Root, name: str, path: str, mpi: MpiFacts, machine: str) -> Iterator[tuple[str, str]]:
    """The directories that a library of this name reads."""
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


def _stamp(path: str) -> list[int]:
    with suppress(OSError):
        state = os.stat(path)
        return [state.st_ino, state.st_size, state.st_mtime_ns]
    return []
