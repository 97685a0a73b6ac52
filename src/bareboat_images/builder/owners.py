"""The owners of a layer's files, read from the layer's recipe: the files in the store have one owner.

A file that a step changes keeps its owner of the layers below.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from bareboat_base import codec, digests
from bareboat_base.errors import StoreError
from bareboat_images.builder.places import Owner
from bareboat_images.layers import recipe as recipes
from bareboat_images.store import Store

_CHUNK = 1 << 20


def of_layer(store: Store, diff_id: str) -> Mapping[bytes, Owner]:
    """Path -> owner, for files that root does not own. Root owns all files of a layer without a recipe."""
    path = _path(store, diff_id)
    with contextlib.suppress(StoreError, OSError, ValueError):
        read = store.read(path, dict[str, tuple[int, int]])
        return {name.encode(errors="surrogateescape"): owner for name, owner in read.items()}
    import tarfile

    recipe = store.recipe(diff_id)
    if not recipe.exists():
        return {}
    found: dict[bytes, Owner] = {}
    stream = io.BufferedReader(
        cast(io.RawIOBase, _Stream(recipes.headers(store.layer(diff_id), recipe))), _CHUNK
    )
    with (
        contextlib.suppress(tarfile.TarError),
        tarfile.open(fileobj=stream, mode="r|", errorlevel=0) as archive,
    ):
        for member in archive:
            name = member.name.encode(errors="surrogateescape").removeprefix(b"./").lstrip(b"/")
            if (member.uid, member.gid) != (0, 0):
                found[name] = (member.uid, member.gid)
            else:
                found.pop(name, None)
            archive.members = []  # type: ignore[attr-defined]  # it would keep them all
    keep(store, diff_id, found)
    return found


def keep(store: Store, diff_id: str, owners: Mapping[bytes, Owner]) -> None:
    """Store the owners for `of_layer`."""
    named = {name.decode(errors="surrogateescape"): owner for name, owner in owners.items()}
    store.write(_path(store, diff_id), codec.to_json(named))


def _path(store: Store, diff_id: str) -> Path:
    return store.builds() / "owners" / f"{digests.hexed(diff_id)}.json"


class _Stream(io.RawIOBase):
    """A sequential stream over pieces of data."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(self._left), len(buffer))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
