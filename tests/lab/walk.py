"""Describe every entry of a tree as one JSON document, to compare trees with.

    python walk.py TREE

A program of its own, because podman's trees are looked at from inside its user namespace. Paths are bytes
decoded with surrogateescape, so that every name survives.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from typing import Any


def describe(top: str) -> dict[str, dict[str, Any]]:
    """Path (relative, the top is "") -> what is there. `same_as` is the first of the paths of a file with
    several names; `times` are whole nanoseconds."""
    found: dict[str, dict[str, Any]] = {}
    first: dict[tuple[int, int], str] = {}
    pending = [""]
    while pending:
        path = pending.pop()
        full = os.path.join(top, path)
        status = os.lstat(full)
        entry: dict[str, Any] = {
            "kind": stat.filemode(status.st_mode)[0],
            "mode": stat.S_IMODE(status.st_mode),
            "mtime_ns": status.st_mtime_ns,
            "xattrs": xattrs(full),
        }
        if stat.S_ISDIR(status.st_mode):
            # Sorted, so that `same_as` is the same path wherever the files are.
            names = sorted(os.listdir(full), reverse=True)
            pending += [f"{path}/{name}" if path else name for name in names]
        else:
            entry["same_as"] = first.setdefault((status.st_dev, status.st_ino), path)
            if stat.S_ISLNK(status.st_mode):
                entry["target"] = os.readlink(full)
            elif stat.S_ISREG(status.st_mode):
                entry["size"] = status.st_size
                with open(full, "rb") as stream:
                    entry["sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
        found[path] = entry
    return found


def xattrs(path: str) -> dict[str, str]:
    """The attributes that belong to users; those of overlayfs are how it keeps its books."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return {}
    return {
        name: os.getxattr(path, name, follow_symlinks=False).hex()
        for name in names
        if name.startswith("user.") and not name.startswith(("user.overlay.", "user.containers."))
    }


if __name__ == "__main__":
    json.dump(describe(sys.argv[1]), sys.stdout)
