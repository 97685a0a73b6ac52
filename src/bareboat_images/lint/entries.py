"""The entries of a layer's tar: names, sizes, modes; no content is read.

The tree in the store lacks what an unprivileged user cannot create (setuid bits, file capabilities), so the
headers come from the layer's recipe. A layer captured here has no recipe: its tree is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bareboat_base.errors import BareboatError
from bareboat_images.layers import layer
from bareboat_images.layers import tar_split as recipes
from bareboat_images.layers.whiteouts import OPAQUE, WHITEOUT, is_whiteout
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar.reader import Tar

#: More entries than any real image has in all its layers.
MOST_ENTRIES = 3_000_000
_LONGEST_NAME = 4096


class Item(NamedTuple):
    """One entry. `path`: absolute in the image; `kind`: `file`, `folder`, `link`, `hard link`, `whiteout`,
    `opaque` or `other`; `size`: of a file's content; `gains`: it has file capabilities."""

    path: str
    kind: str
    size: int
    mode: int
    gains: bool


def read(tree: Path, recipe: Path, *, name: str, most: int = MOST_ENTRIES) -> Iterator[Item]:
    """Yield the entries of a stored layer, in the order of its tar. Raises ImageError, StoreError, OSError,
    and BareboatError for more than `most` entries."""
    source = _of_recipe(tree, recipe, name) if recipe.exists() else _of_tree(str(tree))
    for count, item in enumerate(source):
        if count >= most:
            raise BareboatError(f"the image has more than {MOST_ENTRIES:,} entries")
        if len(item.path) <= _LONGEST_NAME:
            yield item


_KINDS = {
    tarreader.FILE: "file",
    tarreader.FOLDER: "folder",
    tarreader.SYMLINK: "link",
    tarreader.LINK: "hard link",
}


def _of_recipe(tree: Path, recipe: Path, name: str) -> Iterator[Item]:
    blocks = recipes.headers(tree, recipe)
    tar = Tar(lambda: next(blocks, None), _drop, name=name, to_the_end=False)
    while (entry := tar.next()) is not None:
        left = entry.size
        while left := tar.drop(left):
            tar.take(1)
            left -= 1
        path = "/" + os.fsdecode(entry.name).removeprefix("./").strip("/")
        if "/." in path or "//" in path:
            path = "/" + os.path.normpath(path).lstrip("/")
        folder, _, base = path.rpartition("/")
        if base.startswith(_WHITEOUT):
            if base == _OPAQUE:
                yield Item(folder or "/", "opaque", 0, 0, False)
            elif not base.startswith(".wh..wh."):
                yield Item(f"{folder}/{base[len(_WHITEOUT) :]}", "whiteout", 0, 0, False)
            continue
        size = entry.sparse.size if entry.sparse is not None else entry.size
        gains = any(key == b"security.capability" for key, _ in entry.xattrs)
        yield Item(path, _KINDS.get(entry.kind, "other"), size, entry.mode, gains)


_WHITEOUT, _OPAQUE = os.fsdecode(WHITEOUT), os.fsdecode(OPAQUE)


def _drop(_data: bytes) -> None:
    """Discard headers."""


def _of_tree(tree: str) -> Iterator[Item]:
    for relative, state in layer.entries(tree):
        folder, _, name = f"/{relative}".rpartition("/")
        mode = stat.S_IMODE(state.st_mode)
        if stat.S_ISREG(state.st_mode) and name.startswith(_WHITEOUT):
            yield Item(f"{folder}/{name[len(_WHITEOUT) :]}", "whiteout", 0, 0, False)
        elif stat.S_ISREG(state.st_mode):
            yield Item(f"/{relative}", "file", state.st_size, mode, False)
        elif is_whiteout(state):
            yield Item(f"/{relative}", "whiteout", 0, 0, False)
        else:
            kinds = {stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
            yield Item(f"/{relative}", kinds.get(stat.S_IFMT(state.st_mode), "other"), 0, mode, False)
