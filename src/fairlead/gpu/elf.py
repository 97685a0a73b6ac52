"""What a library says of itself: its own name, and the newest glibc whose symbols it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True)
class Library:
    soname: str | None = None
    glibc: str | None = None


def read(path: str) -> Library:
    """Nothing is known of a file that is damaged, or is no library."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    soname: str | None = None
    glibc: tuple[int, ...] = ()
    tag: Any  # DynamicTag gets the attribute that its kind has
    try:
        with open(path, "rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, DynamicSection):
                    for tag in section.iter_tags("DT_SONAME"):
                        soname = str(tag.soname)
                elif isinstance(section, GNUVerNeedSection):
                    for _, versions in section.iter_versions():
                        for version in versions:
                            if told := _GLIBC.fullmatch(str(version.name)):
                                glibc = max(glibc, tuple(map(int, told[1].split("."))))
    except Exception:
        # For damage pyelftools raises whatever comes: ELFError, AssertionError, KeyError …
        return Library(soname)
    return Library(soname, ".".join(map(str, glibc)) or None)
