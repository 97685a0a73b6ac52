"""What a library says of itself: its own name, what it loads and from where, and which versions of symbols it
asks for and gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True)
class Library:
    """`glibc`: the newest whose symbols are asked for. `search`: its RPATH or RUNPATH, not yet expanded.
    `asks`: library -> the versions of symbols; `gives`: those that it has itself."""

    soname: str | None = None
    glibc: str | None = None
    needed: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    asks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gives: tuple[str, ...] = ()


def read(path: str) -> Library:
    """Nothing is known of a file that is damaged, or is no library."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

    soname: str | None = None
    glibc: tuple[int, ...] = ()
    needed: list[str] = []
    search: list[str] = []
    asks: dict[str, tuple[str, ...]] = {}
    gives: list[str] = []
    tag: Any  # DynamicTag gets the attribute that its kind has
    try:
        with open(path, "rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, DynamicSection):
                    for tag in section.iter_tags():
                        match tag.entry.d_tag:
                            case "DT_SONAME":
                                soname = str(tag.soname)
                            case "DT_NEEDED":
                                needed.append(str(tag.needed))
                            case "DT_RPATH":
                                search += str(tag.rpath).split(":")
                            case "DT_RUNPATH":
                                search += str(tag.runpath).split(":")
                elif isinstance(section, GNUVerNeedSection):
                    for file, versions in section.iter_versions():
                        names = [str(version.name) for version in versions]
                        asks[str(file.name)] = tuple(names)
                        for name in names:
                            if told := _GLIBC.fullmatch(name):
                                glibc = max(glibc, tuple(map(int, told[1].split("."))))
                elif isinstance(section, GNUVerDefSection):
                    for _, versions in section.iter_versions():
                        gives += [str(next(iter(versions)).name)]
    except Exception:
        # For damage pyelftools raises whatever comes: ELFError, AssertionError, KeyError …
        return Library(soname)
    return Library(
        soname=soname,
        glibc=".".join(map(str, glibc)) or None,
        needed=tuple(needed),
        search=tuple(filter(None, search)),
        asks=asks,
        gives=tuple(gives),
    )
