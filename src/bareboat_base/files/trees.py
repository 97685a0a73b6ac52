"""Remove trees of any depth and with any modes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a file, or a tree of any depth, also with read-only directories."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    # Neither shutil.rmtree, which is recursive, nor long paths: hostile layers nest directories by the
    # thousand.
    here = _enter(str(path), None)
    trail: list[str] = []
    try:
        while True:
            deeper = _empty(here)
            if deeper is not None:
                inner = _enter(deeper, here)
                os.close(here)
                here = inner
                trail.append(deeper)
            elif trail:
                outer = os.open("..", _FOLDER, dir_fd=here)
                os.close(here)
                here = outer
                os.rmdir(trail.pop(), dir_fd=here)
            else:
                break
    finally:
        os.close(here)
    os.rmdir(path)


def _enter(name: str, folder: int | None) -> int:
    """Open a directory and make it writable, to empty it."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_mode & 0o700 != 0o700:
            os.fchmod(descriptor, 0o700)
    return descriptor


def _empty(folder: int) -> str | None:
    """Remove the files of a directory up to its first subdirectory, and return that name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name, dir_fd=folder)
    return None
