"""The build cache: results of steps by what they depend on. A killed build continues from it.

A key covers the layers below, the instruction with its variables replaced, and the content of the files that
it copies or mounts, but not their times and no secrets. The records are in the user's own store, because
write access to them would control the content of images; the layers are stored with all other layers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from bareboat_base import codec, digests
from bareboat_base.errors import StoreError
from bareboat_images.model import StoredLayer
from bareboat_images.store import Store

#: Part of every key. Increase it when steps produce different results than before.
_VERSION = 4


class Record(Struct, frozen=True, kw_only=True):
    """The result of one step. `diff_id`: of its layer, empty if it changed nothing; `created`: time."""

    created: str
    diff_id: str = ""
    step: str = ""


def key_of(kind: str, **parts: Any) -> str:
    """The key: a hexadecimal digest of everything that the result depends on."""
    return digests.hexed(codec.digest({"version": _VERSION, "kind": kind, **parts}))


class Cache:
    """The cache records of a store."""

    def __init__(self, store: Store, *, reads: bool = True) -> None:
        """Without `reads`, earlier results are ignored and replaced."""
        self._store = store
        self._reads = reads
        self._made: set[str] = set()

    def find(self, key: str) -> tuple[Record, StoredLayer | None] | None:
        """The record and its layer; None if there is no record or the layer was removed."""
        if not self._reads and key not in self._made:
            return None
        path = self._path(key)
        try:
            record = self._store.read(path, Record)
            layer = self._store.stored_layer(record.diff_id) if record.diff_id else None
        except (StoreError, OSError):
            return None
        if record.diff_id and not self._store.has_layer(record.diff_id):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # a garbage collection removes records that were not used for long
        return record, layer

    def keep(self, key: str, record: Record) -> None:
        """Record a result whose layer is in the store."""
        self._made.add(key)
        self._store.write(self._path(key), codec.to_json(record))

    def _path(self, key: str) -> Path:
        return steps_folder(self._store) / f"{key}.json"


def steps_folder(store: Store) -> Path:
    """The directory of the records."""
    return store.builds() / "steps"


def mounts_folder(store: Store) -> Path:
    """The directory that holds those of RUN --mount=type=cache."""
    return store.builds() / "mounts"


def layers(store: Store, *, without: Collection[str] = ()) -> Iterator[str]:
    """The layers that the records refer to. `without`: file names of records to skip."""
    folder = steps_folder(store)
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        if path.name in without:
            continue
        with contextlib.suppress(StoreError, OSError):
            if found := store.read(path, Record).diff_id:
                yield found
