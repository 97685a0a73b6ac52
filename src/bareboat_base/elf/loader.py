"""Where the dynamic loader finds a library: ld.so(8)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from bareboat_base import architectures
from bareboat_base.elf import cache as ldcache
from bareboat_base.elf.binary import SearchPath

CACHE = "/etc/ld.so.cache"
_NO_SEARCH_PATH = SearchPath()


class Loader:
    """Finds libraries as a machine's dynamic loader would: by RPATH, LD_LIBRARY_PATH, RUNPATH, the loader's
    cache, the default directories; $ORIGIN is expanded in the first and the third."""

    def __init__(
        self,
        machine: str,
        *,
        real: Callable[[str], str | None],
        cache: bytes = b"",
        library_path: str = "",
        directories: Iterable[str] | None = None,
        siblings: bool = False,
    ) -> None:
        """`real`: the path of a regular file without links, None where there is none. `directories`: the
        default ones, unless they are the machine's. `siblings`: look beside the file that needs the library,
        too, since libraries of one installation find each other by the RPATH of whoever loaded them first."""
        self._real = real
        self._library_path = tuple(each for each in library_path.split(":") if each.startswith("/"))
        self._directories = tuple(
            architectures.library_folders(machine) if directories is None else directories
        )
        self._siblings = siblings
        self._cache: dict[str, str] = {}
        with suppress(ValueError):  # the loader does without it, too
            for entry in ldcache.parse(cache, machine) if cache else ():
                self._cache.setdefault(entry.name, entry.path)

    def find(self, soname: str, needed_by: str = "/", search: SearchPath = _NO_SEARCH_PATH) -> str | None:
        """The path of a library as `needed_by` would load it, or None."""
        if "/" in soname:
            return soname if self._real(soname) is not None else None
        beside = ("$ORIGIN",) if self._siblings else ()
        for directory in (*search.rpath, *self._library_path, *search.runpath, *beside):
            if "$" in directory:
                origin = os.path.dirname(self._real(needed_by) or needed_by)
                directory = directory.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
            path = os.path.normpath(os.path.join(directory, soname))
            if self._real(path) is not None:
                return path
        cached = self._cache.get(soname)
        if cached is not None and self._real(cached) is not None:
            return cached
        paths = (os.path.join(directory, soname) for directory in self._directories)
        return next((path for path in paths if self._real(path) is not None), None)


def of_machine(library_path: str = "") -> Loader:
    """The loader of this machine. `library_path`: LD_LIBRARY_PATH."""
    cache = b""
    with suppress(OSError):
        cache = Path(CACHE).read_bytes()
    return Loader(os.uname().machine, real=_real, cache=cache, library_path=library_path)


def _real(path: str) -> str | None:
    return os.path.realpath(path) if os.path.isfile(path) else None
