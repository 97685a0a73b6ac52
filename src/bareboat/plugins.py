"""What installed packages add to Bareboat: entry points of the groups that start with `bareboat.`."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


@functools.cache
def entry_points() -> EntryPoints | None:
    """All entry points, read once. None: no package has one of ours, as in most environments; then
    importlib.metadata, whose import takes as long as all of --help, is not needed."""
    if not any(map(_may_add, sys.path)) and all(map(_is_known, sys.meta_path)):
        return None
    import importlib.metadata

    # Python 3.11 returns a dict that has the same select().
    return cast("EntryPoints", importlib.metadata.entry_points())


def _may_add(folder: str) -> bool:
    """Whether the metadata of a package in a directory of sys.path may name one of our groups."""
    if os.path.isfile(folder):
        return True  # a zip file, which only importlib.metadata reads
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if not entry.name.lower().endswith(("dist-info", "egg-info")):
                continue
            path = os.path.join(entry.path, "entry_points.txt")
            with contextlib.suppress(OSError), open(path, "rb") as stream:
                if b"[bareboat." in stream.read():
                    return True
    return False


def _is_known(finder: object) -> bool:
    """Whether a finder of modules finds packages in the directories of sys.path, or none."""
    return finder is PathFinder or not hasattr(finder, "find_distributions")
