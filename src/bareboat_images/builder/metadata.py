"""Owners and modes of a layer's entries, read from the layer's recipe: the files in the store have one owner,
who can read all of them, and no privileges.

What a step changes keeps the owner that it has in the layers below; a directory also keeps its mode.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from bareboat_base import codec, digests
from bareboat_base.errors import StoreError
from bareboat_images.builder.places import Owner, PlaceError, locate
from bareboat_images.layers import tar_split as recipes
from bareboat_images.layers.copies import tree_mode
from bareboat_images.layers.view import Node, View
from bareboat_images.oci.source import Joined
from bareboat_images.store import Store
from bareboat_images.tar import reader as tarreader

_CHUNK = 1 << 20


class Metadata(Struct, frozen=True):
    """What the tar of a layer has for an entry, and its tree cannot have."""

    owner: Owner
    mode: int


class Below:
    """The metadata of the entries of a root file system, each from the uppermost layer that has the entry."""

    def __init__(self, view: View, layers: Mapping[str, Mapping[bytes, Metadata]]) -> None:
        """`layers`: the tree of a layer -> its metadata, for trees that lack some."""
        self._view = view
        self._layers = layers

    def entry(self, path: bytes) -> Node | None:
        """The entry at this path, without links; None if there is none."""
        name = "/" + os.fsdecode(path)
        try:
            place = locate(self._view, name, last_link=False)
        except PlaceError:  # a parent is not a directory
            return None
        return place.node if place.path == name else None

    def of(self, path: bytes, node: Node) -> Metadata | None:
        """The metadata of an entry; None if its tree has all of it."""
        tree = node.places[0].removesuffix(f"/{os.fsdecode(path)}")
        return self._layers.get(tree, {}).get(path)

    def find(self, path: bytes) -> Metadata | None:
        if not any(path in known for known in self._layers.values()):
            return None
        node = self.entry(path)
        return None if node is None else self.of(path, node)

    def mode(self, path: bytes, mode: int) -> int:
        """The mode of a directory that a step copied to its layer, and that has this mode in its tree."""
        known = self.find(path)
        return known.mode if known is not None and tree_mode(known.mode, is_folder=True) == mode else mode


def metadata(kind: bytes, mode: int, owner: Owner) -> Metadata | None:
    """The metadata of an entry; None if its tree has all of it. `kind`: the type in the tar."""
    is_complete = kind == tarreader.SYMLINK or tree_mode(mode, is_folder=kind == tarreader.FOLDER) == mode
    return None if is_complete and owner == (0, 0) else Metadata(owner, mode)


def of_layer(store: Store, diff_id: str) -> Mapping[bytes, Metadata]:
    """Path -> metadata, for entries whose tree lacks some. A layer without a recipe has none."""
    path = _path(store, diff_id)
    with contextlib.suppress(StoreError, OSError, ValueError):
        read = store.read(path, dict[str, Metadata])
        return {name.encode(errors="surrogateescape"): known for name, known in read.items()}
    import tarfile

    recipe = store.recipe(diff_id)
    if not recipe.exists():
        return {}
    found: dict[bytes, Metadata] = {}
    stream = io.BufferedReader(Joined(recipes.headers(store.layer(diff_id), recipe)), _CHUNK)
    with (
        contextlib.suppress(tarfile.TarError),
        tarfile.open(fileobj=stream, mode="r|", errorlevel=0) as archive,
    ):
        for member in archive:
            name = member.name.encode(errors="surrogateescape").removeprefix(b"./").lstrip(b"/")
            known = metadata(member.type, stat.S_IMODE(member.mode), (member.uid, member.gid))
            if known is not None:
                found[name] = known
            else:
                found.pop(name, None)
            archive.members = []  # type: ignore[attr-defined]  # it would keep them all
    keep(store, diff_id, found)
    return found


def keep(store: Store, diff_id: str, found: Mapping[bytes, Metadata]) -> None:
    """Store the metadata for `of_layer`."""
    named = {name.decode(errors="surrogateescape"): known for name, known in found.items()}
    store.write(_path(store, diff_id), codec.to_json(named))


def _path(store: Store, diff_id: str) -> Path:
    return store.builds() / "metadata" / f"{digests.hexed(diff_id)}.json"
