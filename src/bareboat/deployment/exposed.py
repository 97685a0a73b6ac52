"""Directories of the host through which a container could write to the store if they are mounted writable."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bareboat_base.files import mounts


def find(store: Path, sources: Iterable[str]) -> dict[str, str]:
    """The path of the store in each of these directories: source -> path, "." for the store itself and
    directories in it; directories that do not contain the store are not returned.

    Directories are compared by device and inode, so symbolic links and second mounts are found.
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
