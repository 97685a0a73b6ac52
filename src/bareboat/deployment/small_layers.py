"""Directories of a few small files, made once and kept in the store, to stack on an image's layers."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from bareboat_images.store import Store

#: The types and permissions of most entries.
FOLDER = stat.S_IFDIR | 0o755
FILE = stat.S_IFREG | 0o644


def provide(store: Store, key: bytes, entries: Mapping[str, tuple[int, bytes]]) -> Path:
    """The directory with these entries: path -> type and permissions, content. Parents that are not entries
    have those of `FOLDER`. `key`: what decides the entries. Raises StoreError."""
    import hashlib

    final = store.identity(hashlib.sha256(key).hexdigest())
    if final.is_dir():
        return final
    with store.scratch(own=True) as scratch:
        top = scratch / "made"
        for name, (mode, data) in entries.items():
            path = top / name
            (path if stat.S_ISDIR(mode) else path.parent).mkdir(parents=True, exist_ok=True)
            if not stat.S_ISDIR(mode):
                path.write_bytes(data)
        for folder in (top, *top.rglob("*/")):
            folder.chmod(0o755)
        for name, (mode, _) in sorted(entries.items(), reverse=True):  # a directory after what is in it
            (top / name).chmod(stat.S_IMODE(mode))
        store.publish(top, final)
    return final
