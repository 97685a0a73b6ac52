"""The options and the result of a build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from bareboat_images.builder.packages import Packages
from bareboat_images.model import Image
from bareboat_images.oci.reference import Reference


class Options(Struct, frozen=True, kw_only=True):
    """The options of a build.

    `dockerfile`: its text; `name`: its path as the user wrote it. `secrets`: id -> content; `sockets`: id ->
    the socket of an SSH agent. `epoch`: the latest time of files in new layers, in seconds since 1970; None
    keeps times. `shell`: open one if a RUN fails. `command`: builds the image again.
    """

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
    command: str = "bareboat image build --no-cache DIRECTORY"


class Engine(Struct, frozen=True, kw_only=True):
    """The bubblewrap that runs the steps. `is_whole`: a probe found all features that a step may need."""

    path: str
    is_whole: bool = False


class Reporter(Protocol):
    """Shows the progress of a build."""

    def begin(self, title: str, text: str) -> None:
        """Report that a step begins. `title`: its stage and number."""

    def output(self, title: str, data: bytes) -> None:
        """Show output of a RUN."""

    def end(self, title: str, text: str, wall_s: float, *, cached: bool) -> None:
        """Report that a step ended."""

    def bytes(self, what: str, done: int, total: int) -> None:
        """Show progress in bytes."""

    def warn(self, text: str) -> None:
        """Show a warning."""


class Machine(Struct, frozen=True, kw_only=True):
    """What a build uses of this machine. `name`: its architecture (`uname -m`); `image`: returns an image by
    its name in a recipe, pulled if missing, or the one in a file of this machine; `engine`: returns the
    engine, given a function that tests a program by its path."""

    name: str
    image: Callable[[str, Reference | None], Image]
    engine: Callable[[Callable[[str], bool]], Engine]


class Built(Struct, frozen=True, kw_only=True):
    """A built image. `steps`: the number of steps that can make a layer; `cached`: how many of them were in
    the cache."""

    image: Image
    steps: int
    cached: int
    warnings: tuple[str, ...] = ()
