"""What a build is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from bareboat.images.build.packages import Packages
from bareboat.model import Image


class Options(Struct, frozen=True, kw_only=True):
    """`dockerfile`: its text, `name`: its path as the user wrote it. `secrets`: id -> content; `sockets`: id
    -> the socket of an SSH agent. `epoch`: no file of a new layer is younger, in seconds since 1970; None
    keeps times. `shell`: opened where a RUN fails; `ids`: RUN has the user's
    subordinate IDs; `command`: builds it again."""

    dockerfile: str
    name: str
    context: Path | None
    ignore: str = ""
    ignore_name: str = ".dockerignore"
    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    sockets: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[tuple[str, str], ...] = ()
    network: str = "default"
    platform: str = ""
    no_cache: bool = False
    epoch: int | None = None
    packages: Packages = field(default_factory=Packages)
    shell: bool = False
    ids: bool = False
    command: str = "bareboat image build --no-cache DIRECTORY"


class Engine(Struct, frozen=True, kw_only=True):
    """The bubblewrap that runs the steps. `is_whole`: it was tried, and does all that a step may need."""

    path: str
    is_whole: bool = False


class Reporter(Protocol):
    """Shows what a build does."""

    def begin(self, title: str, text: str) -> None:
        """A step begins: `title` is its stage and number."""

    def output(self, title: str, data: bytes) -> None:
        """A RUN printed something."""

    def end(self, title: str, text: str, wall_s: float, *, cached: bool) -> None:
        """A step is over."""

    def bytes(self, what: str, done: int, total: int) -> None:
        """Progress in bytes."""

    def warn(self, text: str) -> None:
        """Something that the user must know."""


class Machine(Struct, frozen=True, kw_only=True):
    """What a build uses of its surroundings: images by reference (`image`, pulled where they are missing),
    the engine, after trying programs by their paths, and a name for this machine's architecture
    (`uname -m`)."""

    name: str
    image: Callable[[str], Image]
    engine: Callable[[Callable[[str], bool]], Engine]


class Built(Struct, frozen=True, kw_only=True):
    """A built image. `steps`, `cached`: how many steps can make a layer, and how many of those results were
    there."""

    image: Image
    steps: int
    cached: int
    warnings: tuple[str, ...] = ()
