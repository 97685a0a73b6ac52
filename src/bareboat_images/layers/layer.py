"""The canonical tar of a layer: one byte sequence for a given tree of files.

Equal trees give equal bytes: names in byte order, parents first, owner 0:0, one time stamp, modes 0755,
0644 and 01777. The tar is never stored: it is hashed once, and written again when an image is exported.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from bareboat_base import digests
from bareboat_base.files import untrusted
from bareboat_images.model import Layer
from bareboat_images.tar import reader as tarreader
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
    written = 0

    def put(data: bytes) -> None:
        nonlocal written
        write(data)
        written += len(data)

    for path, state in entries(tree):
        name, mode = os.fsencode(path), stat.S_IMODE(state.st_mode)
        full = os.path.join(tree, path)
        header = functools.partial(tarwriter.header, mtime=EPOCH, style=tarwriter.Style(plain=False))
        if stat.S_ISDIR(state.st_mode):
            put(header(name + b"/", tarreader.FOLDER, mode=mode))
        elif stat.S_ISLNK(state.st_mode):
            put(header(name, tarreader.SYMLINK, mode=0o777, link=os.fsencode(os.readlink(full))))
        elif stat.S_ISREG(state.st_mode):
            put(header(name, tarreader.FILE, mode=mode, size=state.st_size))
            try:
                with untrusted.stream(full, buffering=0) as stream:
                    for data in tarwriter.content(stream, state.st_size):
                        put(data)
            except EOFError:
                raise ValueError(f"{full} became shorter while it was read") from None
        else:
            raise ValueError(f"{full} is not a file, directory or symbolic link")
    put(tarwriter.END)
    return written


def digest_tree(tree: str, algorithm: str = "sha256") -> tuple[str, int]:
    """The digest and the size in bytes of the tree's canonical tar."""
    hashed = digests.hasher(algorithm)
    size = write_tar(tree, hashed.update)
    return digests.written(hashed), size
