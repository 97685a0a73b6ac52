"""Symbolic links, followed as path_resolution(7) does, wherever the files are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bareboat_base.paths import lies_in

#: As many as Linux follows.
MOST_LINKS = 40


def follow(
    path: str,
    target: Callable[[str], str | None],
    is_folder: Callable[[str], bool] = lambda _: True,
) -> str | None:
    """The target of an absolute path, without links; None when missing, or after too many links.

    `target`: of the link at a path without links in its parents; None for other files, "" when missing.
    `is_folder`: of such a path, for `..` behind it.
    """
    pending = _parts(path)
    here = "/"
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            if not is_folder(here):
                return None
            here = os.path.dirname(here)
            continue
        step = f"{here.rstrip('/')}/{part}"
        leads = target(step)
        if leads is None:
            here = step
            continue
        links += 1
        if links > MOST_LINKS or not leads:
            return None
        if leads.startswith("/"):
            here = "/"
        pending += _parts(leads)
    return here


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def leading_out(directory: Path) -> Iterator[tuple[str, str]]:
    """The links in a directory that leave it, by name, each with its existing target without links."""
    inside = os.path.realpath(directory)
    try:
        with os.scandir(directory) as entries:
            links = sorted((entry.name, entry.path) for entry in entries if entry.is_symlink())
    except OSError:
        return
    for name, path in links:
        target = os.path.realpath(path)
        if os.path.exists(target) and not lies_in(target, inside):
            yield name, target
