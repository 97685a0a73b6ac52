"""Which shared libraries a file needs, and where the dynamic loader would find them.

The search follows ld.so(8): RPATH or RUNPATH with $ORIGIN, the loader's cache, the default folders.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from bareboat import architectures
from bareboat.errors import ToolError
from bareboat.model import Outcome

log = logging.getLogger("bareboat")

#: Where ld.so looks with no cache and no RPATH.
DEFAULT_FOLDERS = architectures.library_folders(os.uname().machine)

_CACHE_LINE = re.compile(r"^[ \t]+(?P<soname>\S+) \((?P<flags>[^)]*)\) => (?P<path>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Needs:
    """What an ELF file asks of the loader. `search` holds its RPATH or RUNPATH, not yet expanded."""

    libraries: tuple[str, ...]
    search: tuple[str, ...]
    interpreter: str | None


def needs(path: str) -> Needs | None:
    """Read the dynamic section; None for a file that is not ELF, or has none."""
    try:
        with open(path, "rb") as stream:
            if stream.read(4) != b"\x7fELF":
                return None
            stream.seek(0)
            libraries: list[str] = []
            search: list[str] = []
            interpreter = None
            for segment in ELFFile(stream).iter_segments():
                if isinstance(segment, InterpSegment):
                    interpreter = segment.get_interp_name()
                elif isinstance(segment, DynamicSegment):
                    tag: Any  # DynamicTag gets the attribute that its kind has
                    for tag in segment.iter_tags():
                        if tag.entry.d_tag == "DT_NEEDED":
                            libraries.append(tag.needed)
                        elif tag.entry.d_tag == "DT_RPATH":
                            search += tag.rpath.split(":")
                        elif tag.entry.d_tag == "DT_RUNPATH":
                            search += tag.runpath.split(":")
    except Exception:
        # A truncated or foreign file cannot be loaded either; it is captured as plain data. For damage
        # pyelftools raises whatever comes: ELFError, AssertionError, KeyError …
        return None
    return Needs(tuple(libraries), tuple(part for part in search if part), interpreter)


class Loader:
    """Finds libraries as the dynamic loader of this machine would."""

    def __init__(self, run: Callable[[list[str]], Outcome], library_path: str = "") -> None:
        """`run` asks `ldconfig -p` for the loader's cache; without ldconfig the default folders serve.
        `library_path` is LD_LIBRARY_PATH, as environment modules set it."""
        self._library_path = tuple(folder for folder in library_path.split(":") if folder.startswith("/"))
        self._cache: dict[str, str] = {}
        own = architectures.find(os.uname().machine)
        flag = own.ldconfig if own is not None else ""
        for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
            try:
                outcome = run([program, "-p"])
            except ToolError as error:
                log.warning("%s: libraries are looked for without the loader's cache", error.message)
                continue
            if outcome.ok:
                for line in _CACHE_LINE.finditer(outcome.stdout):
                    # Entries for special processors ("hwcaps") come first and need their own folder names.
                    if flag in line["flags"] and "hwcap" not in line["flags"]:
                        self._cache.setdefault(line["soname"], line["path"])
                break

    def find(self, soname: str, needed_by: str, search: tuple[str, ...]) -> str | None:
        """The path of a library as `needed_by` would load it, or None."""
        if "/" in soname:
            return soname if os.path.isfile(soname) else None
        origin = os.path.dirname(os.path.realpath(needed_by))
        for folder in (*search, *self._library_path):
            folder = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
            path = os.path.normpath(os.path.join(folder, soname))
            if os.path.isfile(path):
                return path
        cached = self._cache.get(soname)
        if cached is not None and os.path.isfile(cached):
            return cached
        for folder in DEFAULT_FOLDERS:
            path = os.path.join(folder, soname)
            if os.path.isfile(path):
                return path
        return None
