"""Bytes and files of an image by directory, in the tree that its processes see, counting each hard link
once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from bareboat_images.layers.view import Found, View

_DEEPEST = 2048


@dataclass(slots=True)
class Weight:
    """Bytes and entries. `files`: files, links and others; `folders`: directories."""

    size_bytes: int = 0
    files: int = 0
    folders: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(
            self.size_bytes + other.size_bytes, self.files + other.files, self.folders + other.folders
        )


@dataclass(slots=True)
class Folder:
    """One directory. `total`: including all below it; `own`: its own files."""

    name: str
    path: str
    own: Weight = field(default_factory=Weight)
    total: Weight = field(default_factory=Weight)
    folders: list[Folder] = field(default_factory=list)

    def largest(self) -> list[Folder]:
        """Its subdirectories, by bytes, then by files, then by name."""
        return sorted(self.folders, key=lambda each: (-each.total.size_bytes, -each.total.files, each.name))


def weigh(
    view: View,
    *,
    each_file: Callable[[str, int], None] = lambda _path, _size: None,
    progress: Callable[[str], None] = lambda _text: None,
) -> Folder:
    """Measure the whole tree. `each_file` gets each file's path and bytes."""
    seen: set[tuple[int, int]] = set()
    root = Folder("/", "/")
    order = [root]
    found = view.find("/")
    pending = [(root, found)] if found is not None else []
    while pending:
        folder, place = pending.pop()
        if len(order) % 100 == 1:
            progress(f"reading directories: {folder.path}")
        for name, node in sorted(view.inside(place).items()):
            path = f"{folder.path.rstrip('/')}/{name}"
            if node.kind == "folder":
                if path.count("/") < _DEEPEST:
                    inner = Folder(name, path)
                    folder.folders.append(inner)
                    order.append(inner)
                    pending.append((inner, Found(path, node)))
                continue
            folder.own.files += 1
            size = 0
            if node.kind == "file":
                try:
                    state = os.lstat(node.places[0])
                except OSError:
                    view.unreadable.append(path)
                    continue
                identity = (state.st_dev, state.st_ino)
                if state.st_nlink < 2 or identity not in seen:
                    size = state.st_size
                    seen.add(identity)
            folder.own.size_bytes += size
            each_file(path, size)
    for folder in reversed(order):  # children come after their parents
        folder.total += folder.own
        for inner in folder.folders:
            folder.total += inner.total
            folder.total.folders += 1
    return root
