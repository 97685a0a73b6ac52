"""A read-only view of an image's layers as one tree, without mounting them.

It follows the rules of overlayfs (https://docs.kernel.org/filesystems/overlayfs.html) and, for layers
unpacked on file systems that do not support its whiteouts, the OCI image layer specification
(https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts). A directory is read on first use,
and only once. Symbolic links are followed only inside the image.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bareboat_base.files import untrusted
from bareboat_base.files.links import follow
from bareboat_images.layers.whiteouts import is_whiteout

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_OPAQUE_ATTRIBUTES = ("user.overlay.opaque", "trusted.overlay.opaque")


class Node(Struct, frozen=True):
    """One entry. `places`: its paths on this machine; for a directory, one for each layer that adds to it,
    top first."""

    kind: Literal["folder", "file", "link", "other"]
    places: tuple[str, ...]


class Found(Struct, frozen=True):
    """A resolved path: without links, and its entry."""

    path: str
    node: Node


_NOTHING: Mapping[str, Node] = {}


class View:
    """The root file system as a process in the image would see it. Paths are absolute paths in the image."""

    def __init__(self, layers: Sequence[Path]) -> None:
        """`layers`: the unpacked layers, bottom first."""
        self._root = Node("folder", tuple(str(layer) for layer in reversed(layers)))
        self._children: dict[str, Mapping[str, Node]] = {}
        #: Directories that this user cannot read or that were removed: their content is unknown.
        self.unreadable: list[str] = []

    def names(self, path: str) -> Mapping[str, Node]:
        """The entries of a directory, links in its path followed; empty if it does not exist."""
        found = self.find(path)
        return self.inside(found) if found is not None and found.node.kind == "folder" else _NOTHING

    def find(self, path: str) -> Found | None:
        """Resolve a path and its links; None if it does not exist or has too many links."""
        met = {"/": Found("/", self._root)}

        def target(step: str) -> str | None:
            parent, _, name = step.rpartition("/")
            folder = met[parent or "/"]
            node = self.inside(folder).get(name) if folder.node.kind == "folder" else None
            if node is None or node.kind == "link":
                return _link_target(node) if node is not None else ""
            met[step] = Found(step, node)
            return None

        real = follow(path, target, lambda step: met[step].node.kind == "folder")
        return met[real] if real is not None else None

    def is_file(self, path: str) -> bool:
        found = self.find(path)
        return found is not None and found.node.kind == "file"

    def read(self, path: str, *, most: int) -> bytes | None:
        """The first `most` bytes of a file; None if it does not exist or cannot be read."""
        with self.open(path) as descriptor:
            if descriptor is None:
                return None
            with contextlib.suppress(OSError):
                return os.read(descriptor, most)
        return None

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[int | None]:
        """A descriptor of a regular file, links followed; None if it does not exist or cannot be read."""
        found = self.find(path)
        if found is None or found.node.kind != "file":
            yield None
            return
        try:
            # Does not follow a link or block on a pipe that replaced the file after the directory was read.
            descriptor = untrusted.open_regular(found.node.places[0])
        except OSError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def inside(self, folder: Found) -> Mapping[str, Node]:
        """The entries of a resolved directory."""
        known = self._children.get(folder.path)
        if known is None:
            known = self._children[folder.path] = self._merge(folder)
        return known

    def _merge(self, folder: Found) -> Mapping[str, Node]:
        """The entries of all layers, the upper ones first, down to the first opaque directory."""
        merged: dict[str, Node] = {}
        closed: set[str] = set()  # names that lower layers no longer add to
        places = folder.node.places
        for number, place in enumerate(places):
            hidden: list[str] = []
            opaque = False
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        name = entry.name
                        if name.startswith(_WHITEOUT):
                            if name == _OPAQUE:
                                opaque = True
                            elif not name.startswith(".wh..wh."):
                                hidden.append(name[len(_WHITEOUT) :])
                        elif name not in closed:
                            _add(merged, closed, entry)
            except OSError:
                self.unreadable.append(folder.path)
            if opaque or (number + 1 < len(places) and _is_opaque(place)):
                break
            closed.update(hidden)
        return merged


def _add(merged: dict[str, Node], closed: set[str], entry: os.DirEntry[str]) -> None:
    name = entry.name
    above = merged.get(name)  # always an open directory: all other names are closed
    if entry.is_dir(follow_symlinks=False):
        merged[name] = Node("folder", (entry.path,) if above is None else (*above.places, entry.path))
        return
    closed.add(name)
    if above is not None or _is_whiteout(entry):
        return
    if entry.is_symlink():
        merged[name] = Node("link", (entry.path,))
    elif entry.is_file(follow_symlinks=False):
        merged[name] = Node("file", (entry.path,))
    else:
        merged[name] = Node("other", (entry.path,))


def _is_whiteout(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_symlink():
        return False
    try:
        state = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return is_whiteout(state)


def _is_opaque(place: str) -> bool:
    for attribute in _OPAQUE_ATTRIBUTES:
        with contextlib.suppress(OSError):
            if os.getxattr(place, attribute, follow_symlinks=False) == b"y":
                return True
    return False


def _link_target(node: Node) -> str:
    try:
        return os.readlink(node.places[0])
    except OSError:
        return ""
