"""The owners of a layer's files, which a tree of one user cannot have: read from the layer's recipe.

A file that a step changes keeps the owner that the layers below give it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from bareboat import codec, digests
from bareboat.errors import StoreError
from bareboat.images.build.places import Owner
from bareboat.images.layers import recipe as recipes
from bareboat.store import Store

_CHUNK = 1 << 20


def of_layer(store: Store, diff_id: str) -> Mapping[bytes, Owner]:
    """Path -> owner, for all that is not root's. A layer without a recipe is root's."""
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
    """Keep what `of_layer` would read."""
    named = {name.decode(errors="surrogateescape"): owner for name, owner in owners.items()}
    store.write(_path(store, diff_id), codec.to_json(named))


def _path(store: Store, diff_id: str) -> Path:
    return store.builds() / "owners" / f"{digests.hexed(diff_id)}.json"


class _Stream(io.RawIOBase):
    """Pieces as a file that is read from front to back."""

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
