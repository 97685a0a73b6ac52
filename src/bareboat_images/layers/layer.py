"""The canonical tar of a layer: one byte sequence for a given tree of files.

Equal trees give equal bytes: names in byte order, parents first, owner 0:0, one time stamp, modes 0755,
0644 and 01777. The tar is never stored: it is hashed once, and written again when an image is exported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from bareboat_base import digests
from bareboat_images.model import Layer
from bareboat_images.tar import writer as tarwriter

#: 1980-01-01 00:00:00 UTC, the earliest time that zip files, and so Python's zipimport, can represent.
EPOCH = 315532800


def entries(tree: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every path below the tree, relative to it, parents before children, in byte order of the names."""
    pending = [""]
    while pending:
        relative = pending.pop()
        folder = os.path.join(tree, relative) if relative else tree
        if relative:
            yield relative, os.lstat(folder)
        children = []
        with os.scandir(folder) as found:
            for child in found:
                children.append((os.fsencode(child.name), child))
        children.sort(key=lambda pair: pair[0])
        files = []
        for _, child in children:
            path = f"{relative}/{child.name}" if relative else child.name
            if child.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                files.append((path, child.stat(follow_symlinks=False)))
        yield from files


def finish(tree: Path, *, comment: str) -> Layer:
    """Set the same time on all entries of a new tree, and hash it."""
    moment = (EPOCH, EPOCH)
    found = list(entries(str(tree)))
    for path, _ in reversed(found):  # a directory after its files, which change its time
        os.utime(tree / path, moment, follow_symlinks=False)
    os.utime(tree, moment)
    diff_id, size_bytes = digest_tree(str(tree))
    return Layer(
        diff_id=diff_id,
        size_bytes=size_bytes,
        unpacked_bytes=sum(state.st_size for _, state in found if stat.S_ISREG(state.st_mode)),
        inodes=len(found) + 1,
        comment=comment,
    )


def write_tar(tree: str, write: Callable[[bytes], object]) -> int:
    """Write the canonical tar of a tree, return its size in bytes.

    Raises ValueError for file types that a captured layer never has (devices, sockets).
    """

    def refuse(path: str) -> None:
        raise ValueError(f"{os.path.join(tree, path)} is not a file, directory or symbolic link")

    rules = tarwriter.Rules(
        mode=lambda state: stat.S_IMODE(state.st_mode),
        mtime=lambda _: EPOCH,
        links=lambda _: False,
        other=refuse,
        style=tarwriter.Style(plain=False),
    )
    written = 0
    try:
        for data in tarwriter.of_tree(tree, entries(tree), rules):
            write(data)
            written += len(data)
    except EOFError as error:
        raise ValueError(f"{os.path.join(tree, str(error))} became shorter while it was read") from None
    return written


def digest_tree(tree: str) -> tuple[str, int]:
    """The digest and the size in bytes of the tree's canonical tar."""
    hashed = digests.hasher()
    size = write_tar(tree, hashed.update)
    return digests.written(hashed), size
