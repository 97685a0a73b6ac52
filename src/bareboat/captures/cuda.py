"""CUDA libraries that an environment contains and does not use without a GPU.

PyTorch's CUDA build is linked with many of them and cannot be imported without these, even without a GPU. So
only libraries that no other file of the environment needs, directly or indirectly, are excluded.
"""

from __future__ import annotations

import os

from bareboat.captures.collect import Collection, Item
from bareboat_base.elf import binary
from bareboat_base.elf.loader import Loader
from bareboat_base.expressions import expression

#: NVIDIA's wheels, and the compilers in Triton's wheel.
_PLACE = expression(r"/(?:site|dist)-packages/(?:nvidia|triton/backends/nvidia)/")
_LIBRARY = expression(r"\.so(\.[0-9.]+)?$|\.a$|/bin/[^/]+$")


def is_library(path: str, item: Item) -> bool:
    """Whether the file is a CUDA library or tool of a package."""
    return item.kind == "file" and bool(_PLACE.search(path)) and bool(_LIBRARY.search(path))


def size_bytes(collection: Collection) -> int:
    return sum(item.size for path, item in collection.items.items() if is_library(path, item))


def leave_out(collection: Collection, loader: Loader, programs: list[str]) -> None:
    """Remove the libraries that no file needs, and record how many. `programs`: files that may need some."""
    libraries = {path for path, item in collection.items.items() if is_library(path, item)}
    by_name = {os.path.basename(path): path for path in libraries}
    needed: set[str] = set()
    pending = [path for path in programs if path not in libraries]
    while pending:
        path = pending.pop()
        with binary.opened(path) as elf:
            wanted = [(soname, loader.find(soname, path, elf.search_path)) for soname in elf.needed]
        for soname, found in wanted:
            # A library that was loaded before is found by its name alone, in any directory.
            real = by_name.get(os.path.basename(soname), "") if found is None else os.path.realpath(found)
            if real in libraries and real not in needed:
                needed.add(real)
                pending.append(real)
    gone = libraries - needed
    amount = sum(collection.items[path].size for path in gone)
    for path in gone:
        del collection.items[path]
    if gone:
        collection.left_out.append(
            f"{len(gone)} CUDA libraries that no other file needs, {amount / 1e6:,.0f} MB (cuda = false)"
        )
