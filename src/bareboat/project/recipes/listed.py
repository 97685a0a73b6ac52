"""A package list, whatever its format: which packages, which Python, and what no recipe can install. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from bareboat_base.printable import one_line

#: Kinds with a fixed version of each package.
LOCKED = ("uv", "pylock", "poetry", "pdm", "pipenv", "pixi", "conda-lock", "conda-explicit", "renv", "julia",
          "frozen")  # fmt: skip


class Listed(Struct, frozen=True, kw_only=True):
    """A package list. `packages`: name -> version, "" where it is not fixed; `python`: the range of versions,
    as PEP 440 writes it; `version`: of R, Julia or the locked Python; `hashed`: each package has a digest.
    `builds`: the project itself is a package. `needs_git`: packages come from git repositories. `left_out`:
    what a recipe cannot install, and why. `text`: the list's content, where the recipe holds it."""

    kind: str
    file: str = ""
    packages: Mapping[str, str]
    python: str = ""
    version: str = ""
    hashed: bool = False
    builds: bool = False
    needs_git: bool = False
    left_out: tuple[str, ...] = ()
    text: str = ""

    @property
    def locked(self) -> bool:
        return self.kind in LOCKED or (self.kind == "requirements" and self.hashed)

    @property
    def loose(self) -> tuple[str, ...]:
        """Packages whose version is not fixed."""
        return tuple(name for name, version in self.packages.items() if not version)


def normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def outside(name: str, place: str) -> Iterator[str]:
    """What is left out where a package's source is not in the project."""
    if place.startswith(("..", "/", "file:", "~")):
        yield f"{one_line(name)}: its source {one_line(place)} is outside the project"


def version(value: str) -> str:
    """A version such as 4.3.1, and "" for anything else."""
    return value if re.fullmatch(r"\d+(\.\d+){1,2}", value) else ""


def unique(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))
