"""Prepare a host's MPI library for one image: which of the libraries that it needs come from the image, and
which files of the image are mounted over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bareboat.model import HostLibrary, HostMpiTree, Image, Mount, Site
from bareboat.mpi import inject
from bareboat.mpi.start_methods import binds
from bareboat_base import architectures, codec
from bareboat_base.elf import binary
from bareboat_base.elf.loader import CACHE, Loader
from bareboat_base.expressions import expression
from bareboat_base.versions import numbers
from bareboat_images.layers.view import View
from bareboat_images.store import Store

_DEFAULT_FOLDERS = (*architectures.library_folders(os.uname().machine), "/usr/local/lib")
#: MPI and its network libraries always come from the host: that is the purpose.
_OWN = expression(r"lib(?:mpi|open-|pmix|prrte|mca_|oshmem|uc[pstm]|fabric|psm|cxi|infinipath|munge)")
#: rdma-core: its parts must match, and libibverbs searches its drivers where it was built for. So all of them
#: come from the image, with its drivers, or all from the host.
_RDMA = expression(r"lib(?:ibverbs|rdmacm|mlx[45]|efa|mana|hns|ibumad)\.so")


def provide(store: Store, image: Image, site: Site) -> dict[str, HostMpiTree]:
    """Library of a host's MPI -> its tree for the image, made once for each pair; empty if the image's
    programs cannot use any of them."""
    found = {}
    view: View | None = None
    for mpi in site.mpis:
        if mpi.library is None or mpi.runtime is None or not binds(image, mpi):
            continue
        key = codec.digest([image.digest, mpi.runtime])
        folder = store.host_mpi(key.removeprefix("sha256:"))
        if not folder.is_dir():
            view = view or store.view(image)
            _make(store, folder, mpi.runtime, view, image)
        found[mpi.library] = store.read(folder / "facts.json", HostMpiTree)
    return found


def _make(store: Store, final: Path, runtime: HostLibrary, view: View, image: Image) -> None:
    left_out = tuple(_left_out(runtime, view, image))
    tree = HostMpiTree(
        folder=str(final / "tree"), left_out=left_out, over=tuple(_over(runtime, view, image, left_out))
    )
    with store.scratch(own=True) as scratch:
        made = scratch / "mpi"
        (made / "tree").mkdir(parents=True, mode=0o755)
        for name, target in inject.links(runtime, left_out).items():
            link = made / "tree" / name
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            link.symlink_to(target)
        (made / "facts.json").write_bytes(codec.to_json(tree))
        store.publish(made, final)


def _left_out(runtime: HostLibrary, view: View, image: Image) -> Iterator[str]:
    """Host libraries to leave out. All programs of the image search the host's directory first, so libraries
    other than MPI come from the image unless its copy is older or lacks symbol versions that the host's
    libraries require."""
    own = _own_copies(runtime, view, image)
    rdma = [file for file in runtime.libraries if _RDMA.match(file.name)]
    if all(
        file.name in own and _gives(own[file.name], _public(runtime.asked.get(file.name, ())))
        for file in rdma
    ):
        yield from (file.name for file in rdma)
    for file in runtime.libraries:
        found = own.get(file.name)
        if inject.EMPTY_PART.fullmatch(file.name):
            if found is not None or _version(image.glibc) < (2, 34):
                yield file.name
        elif found is not None and not (_OWN.match(file.name) or _RDMA.match(file.name)):
            ours, theirs = _file_version(found[0]), _file_version(file.path)
            asked = runtime.asked.get(file.name, ())
            told = bool(asked or (ours and theirs))
            if told and not (ours and theirs and ours < theirs) and _gives(found, asked):
                yield file.name


def _own_copies(runtime: HostLibrary, view: View, image: Image) -> dict[str, tuple[str, str]]:
    """The libraries needed by the host's MPI that the image's loader would find in the image -> their path
    there, and on this machine."""

    def real(path: str) -> str | None:
        found = view.find(path)
        return found.path if found is not None and found.node.kind == "file" else None

    loader = Loader(
        os.uname().machine,
        real=real,
        cache=view.read(CACHE, most=2**24) or b"",
        library_path=image.environment.get("LD_LIBRARY_PATH", ""),
        directories=_DEFAULT_FOLDERS,
    )
    places = {file.name: loader.find(file.name) for file in runtime.libraries}
    found = {name: view.find(place) for name, place in places.items() if place is not None}
    return {name: (each.path, each.node.places[0]) for name, each in found.items() if each is not None}


def _gives(library: tuple[str, str], asked: Iterable[str]) -> bool:
    with binary.opened(library[1]) as elf:
        return set(asked) <= set(elf.gives)


def _public(versions: Iterable[str]) -> list[str]:
    """The symbol versions without those private to libraries of one build (IBVERBS_PRIVATE_34)."""
    return [version for version in versions if "PRIVATE" not in version]


def _over(runtime: HostLibrary, view: View, image: Image, left_out: tuple[str, ...]) -> Iterator[Mount]:
    """Mounts of the host's files over those of the image's MPIs. A program may find its MPI by a path of its
    own, such as DT_RPATH, or next to its interpreter (mpi4py), before LD_LIBRARY_PATH is searched."""
    folders = {os.path.dirname(mpi.library) for mpi in image.mpis if mpi.library is not None}
    # The directory of libmpi has the libraries that it consists of and, in wheels, its network libraries.
    places = [p for folder in sorted(folders) for p in (folder, f"{folder}/openmpi", f"{folder}/mpich")]
    done: set[str] = set()
    for file in runtime.libraries:
        if file.name in left_out:
            continue
        for place in places:
            # The directory of links is searched before the default directories.
            if place in _DEFAULT_FOLDERS and not file.name.startswith("libmpi"):
                continue
            found = view.find(f"{place}/{file.name}")
            if found is not None and found.node.kind == "file" and found.path not in done:
                done.add(found.path)
                yield Mount(source=file.path, target=found.path)


def _version(text: str | None) -> tuple[int, ...]:
    return numbers(text or "")


def _file_version(path: str) -> tuple[int, ...]:
    """The version in a name such as libstdc++.so.6.0.30; () for a name with at most one number."""
    told = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path)
    return tuple(map(int, told[1].split("."))) if told is not None else ()
