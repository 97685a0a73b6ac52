"""The files of an image, as the readers of its package databases need them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from bareboat_images.layers.view import Node, View

RPM = ("/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite")
APK = ("/lib/apk/db/installed", "/usr/lib/apk/db/installed")
_MOST_FOLDERS = 2_000_000
_DEEPEST = 256
#: Never part of an image, whatever they contain.
_SKIPPED = ("/proc", "/sys", "/dev")

Warn = Callable[[str], None]


def read(view: View, path: str, *, most: int, warn: Warn) -> bytes | None:
    """A whole file; None if it does not exist, or, with a warning, if it is too large."""
    with view.open(path) as descriptor:
        if descriptor is None:
            return None
        if os.fstat(descriptor).st_size > most:
            warn(f"{path} is not read: it is larger than {most:,} bytes")
            return None
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(most)


def walk(view: View, warn: Warn) -> Iterator[tuple[str, str, Node]]:
    """The directory, the path and the node of every entry; a directory before its entries."""
    pending = ["/"]
    folders = 0
    while pending:
        folder = pending.pop()
        folders += 1
        if folders > _MOST_FOLDERS:
            warn(f"only the first {_MOST_FOLDERS:,} directories were searched")
            return
        for name, node in sorted(view.names(folder).items()):
            path = f"{folder.rstrip('/')}/{name}"
            if node.kind == "folder" and path not in _SKIPPED and path.count("/") < _DEEPEST:
                pending.append(path)
            yield folder, path, node
