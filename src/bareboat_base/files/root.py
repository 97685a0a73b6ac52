"""The files below a root, by their paths relative to it: of a machine, a driver container or an image."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat

from bareboat_base.files import untrusted
from bareboat_base.files.links import follow

_LARGEST_BYTES = 64 << 20


class Root:
    """Paths are relative to the root; `real` gives their location."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def real(self, path: str) -> str | None:
        """The real path, with links followed without leaving the root; None when it does not exist."""

        def target(step: str) -> str | None:
            with contextlib.suppress(OSError):
                return os.readlink(self._root + step)
            return None

        real = follow(path, target)
        there = None if real is None else self._root + real
        return there if there is not None and os.path.lexists(there) else None

    def read(self, path: str, most: int = _LARGEST_BYTES) -> bytes:
        """A file's content, or its beginning; empty when it is missing or cannot be read."""
        with contextlib.suppress(OSError):
            real = self.real(path)
            if real is not None:
                return untrusted.read_head(real, limit=most)
        return b""

    def text(self, path: str) -> str:
        return self.read(path).decode(errors="replace")

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """The names in the directory, sorted; empty when it cannot be read."""
        real = self.real(folder)
        try:
            return sorted(fnmatch.filter(os.listdir(real), pattern)) if real is not None else []
        except OSError:
            return []

    def is_file(self, path: str) -> bool:
        real = self.real(path)
        return real is not None and os.path.isfile(real)

    def is_folder(self, path: str) -> bool:
        real = self.real(path)
        return real is not None and os.path.isdir(real)

    def is_program(self, path: str) -> bool:
        real = self.real(path)
        return real is not None and os.path.isfile(real) and os.access(real, os.X_OK)

    def major(self, path: str) -> int | None:
        """The major number of a character device."""
        real = self.real(path)
        with contextlib.suppress(OSError):
            if real is not None and stat.S_ISCHR((state := os.stat(real)).st_mode):
                return os.major(state.st_rdev)
        return None
