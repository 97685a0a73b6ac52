"""Which directories of the host, mounted writable, would let a container write to the store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bareboat.files import mounts


def find(store: Path, sources: Iterable[str]) -> dict[str, str]:
    """Where in each of these directories the store lies: source -> path in it, "." for one that is the store
    or lies in it; others are left out.

    Directories are compared by what they are: a symbolic link or a second mount of the same one is no way
    around.
    """
    sources = tuple(dict.fromkeys(sources))
    if not sources:
        return {}
    around: dict[tuple[int, int], str] = {}
    own: tuple[int, int] | None = None
    for name in mounts.names_of(os.path.realpath(store)):
        path, inner = name, ""
        while True:
            if (key := _key(path)) is not None:
                around.setdefault(key, inner or ".")
                own = own or key
            if path == "/":
                break
            path, _, last = path.rpartition("/")
            path, inner = path or "/", f"{last}/{inner}" if inner else last
    found = {}
    for source in sources:
        key = _key(source)
        if key in around:
            found[source] = around[key]
        elif own is not None and own in _above(source):
            found[source] = "."
    return found


def _above(path: str) -> set[tuple[int, int] | None]:
    path = os.path.realpath(path)
    found = {_key(path)}
    while path != "/":
        path = os.path.dirname(path)
        found.add(_key(path))
    return found


def _key(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
