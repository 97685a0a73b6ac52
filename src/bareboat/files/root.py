"""The files below a root, named as by who has it for `/`: a machine's, a driver container's, an image's."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat

from bareboat.files.links import follow


class Root:
    """Paths are given as the machine names them; `real` says where they lie."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def real(self, path: str) -> str | None:
        """Where the path really lies, links followed without leaving the root; None when nothing is there."""

        def target(step: str) -> str | None:
            with contextlib.suppress(OSError):
                return os.readlink(self._root + step)
            return None

        real = follow(path, target)
        there = None if real is None else self._root + real
        return there if there is not None and os.path.lexists(there) else None

    def read(self, path: str, most: int = -1) -> bytes:
        """A file's content, or its beginning; nothing for what is not there or cannot be read."""
        with contextlib.suppress(OSError):
            real = self.real(path)
            if real is not None and stat.S_ISREG(os.stat(real).st_mode):
                with open(real, "rb") as stream:
                    return stream.read(most)
        return b""

    def text(self, path: str) -> str:
        return self.read(path).decode(errors="replace")

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """What the directory holds, sorted; nothing when it cannot be read."""
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
