"""A tree of an image that a build writes to. Paths are opened name by name, so no link leads out of it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bareboat_images.layers.copies import FOLDER, writable
from bareboat_images.layers.whiteouts import is_opaque


class Tree:
    """A directory tree. Paths are those in the image, and their parents must be directories, not links: the
    methods raise FileNotFoundError or NotADirectoryError otherwise."""

    def __init__(self, top: Path) -> None:
        self._top = os.open(top, FOLDER)
        #: The last used directory and its descriptor.
        self._path = ""
        self._here = os.dup(self._top)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._here)
        os.close(self._top)

    def folder(self, path: str) -> int:
        """The descriptor of a directory, valid until the next call."""
        path = "/".join(part for part in path.split("/") if part)
        if path == self._path:
            return self._here
        inside = self._path and path.startswith(f"{self._path}/")
        rest = path[len(self._path) :] if inside else path
        here = os.dup(self._here if inside else self._top)
        try:
            for part in filter(None, rest.split("/")):
                if part in (".", ".."):
                    raise NotADirectoryError(f"{path!r} is not normal")
                step = _open(part, here, path)
                os.close(here)
                here = step
        except BaseException:
            os.close(here)
            raise
        os.close(self._here)
        self._path, self._here = path, here
        return here

    def at(self, path: str) -> tuple[int, str]:
        """The descriptor of a path's parent directory, valid until the next call, and the last name."""
        above, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise NotADirectoryError(f"{path!r} is not normal")
        return self.folder(above), name

    def state(self, path: str) -> os.stat_result | None:
        """The stat result of a path, links not followed; None if it does not exist."""
        if not path.strip("/"):
            return os.fstat(self._top)
        with contextlib.suppress(FileNotFoundError):
            folder, name = self.at(path)
            return os.lstat(name, dir_fd=folder)
        return None

    def make_folder(self, path: str) -> None:
        """Make a directory; its parent must exist."""
        folder, name = self.at(path)
        with writable(folder):
            os.mkdir(name, 0o700, dir_fd=folder)

    def link(self, first: str, path: str) -> None:
        """Make a hard link `path` to the file `first`."""
        source, name = self.at(first)
        source = os.dup(source)
        try:
            folder, last = self.at(path)
            os.link(name, last, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(source)

    def change_folder(self, path: str, *, mode: int | None = None, mtime_ns: int | None = None) -> None:
        """Change the mode and the time of a directory."""
        descriptor = self.folder(path)
        if mode is not None:
            os.fchmod(descriptor, mode)
        if mtime_ns is not None:
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))

    def folders(self) -> Iterator[str]:
        """All directories below the top, parents first; unreadable ones have no subdirectories here."""
        pending = ["/"]
        while pending:
            path = pending.pop()
            if path != "/":
                yield path
            with contextlib.suppress(PermissionError), os.scandir(self.folder(path)) as entries:
                names = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
                pending += [f"{path.rstrip('/')}/{name}" for name in names]

    def is_opaque(self, path: str) -> bool:
        """Whether a directory hides its content in the layers below."""
        with contextlib.suppress(OSError):
            return is_opaque(self.folder(path))
        return False

    def remove_empty(self, path: str) -> bool:
        """Remove an empty file or directory. Returns whether it was removed."""
        with contextlib.suppress(OSError):
            folder, name = self.at(path)
            state = os.lstat(name, dir_fd=folder)
            with writable(folder):
                if stat.S_ISDIR(state.st_mode):
                    os.rmdir(name, dir_fd=folder)
                elif stat.S_ISREG(state.st_mode) and state.st_size == 0:
                    os.unlink(name, dir_fd=folder)
                else:
                    return False
            return True
        return False


def _open(name: str, folder: int, path: str) -> int:
    try:
        return os.open(name, FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        raise
