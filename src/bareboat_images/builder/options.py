"""The options and the result of a build."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import quoted
from bareboat_images.builder.packages import Packages
from bareboat_images.model import Image
from bareboat_images.oci.reference import Reference
from bareboat_images.recipe import ignore, lines
from bareboat_images.recipe.stages import EPOCH


class Options(Struct, frozen=True, kw_only=True):
    """The options of a build.

    `dockerfile`: its text; `name`: its path as the user wrote it. `secrets`: id -> content. `epoch`: the
    latest time of files in new layers, in seconds since 1970; None keeps times. `shell`: open one if a RUN
    fails. `command`: builds the image again. `pip_index`, `apt_mirrors`, `certificates`: of `Packages`.
    """

    dockerfile: str
    name: str
    context: Path | None
    ignore: str = ""
    ignore_name: str = ".dockerignore"
    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    network: str = "default"
    platform: str = ""
    no_cache: bool = False
    epoch: int | None = None
    pip_index: str = ""
    apt_mirrors: Mapping[str, str] = field(default_factory=dict)
    certificates: bytes = b""
    shell: bool = False
    command: str = "bareboat image build --no-cache DIRECTORY"

    @property
    def packages(self) -> Packages:
        return Packages(index=self.pip_index, mirrors=self.apt_mirrors, certificates=self.certificates)

    @classmethod
    def read(cls, path: Path, context: Path | None, *, flag: str = "") -> Options:
        """The options for a Dockerfile, which `flag` may have named, with its ignore file or that of the
        context. Raises UsageError."""
        ignored = read_ignore(path, context)
        text, name = ignored if ignored is not None else ("", ".dockerignore")
        dockerfile = _read(path, lines.LARGEST_BYTES, flag=flag)
        return cls(dockerfile=dockerfile, name=str(path), context=context, ignore=text, ignore_name=name)

    def dated(self, environment: Mapping[str, str]) -> Options:
        """The same with the epoch of the environment variables or build arguments, for an ARG of this name
        too, as docker buildx does. Raises UsageError. https://reproducible-builds.org/specs/source-date-epoch/"""
        text = self.arguments.get(EPOCH, environment.get(EPOCH, ""))
        if not text:
            return self
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            raise UsageError(
                f"SOURCE_DATE_EPOCH is {quoted(text)}, not a number of seconds since 1970",
                remedy="export SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)",
            )
        return replace(self, epoch=int(text), arguments={**self.arguments, EPOCH: str(int(text))})


def read_ignore(path: Path, context: Path | None) -> tuple[str, str] | None:
    """The ignore file of a Dockerfile or of its context, and the file's name. Raises UsageError."""
    names = (".containerignore", ".dockerignore")
    of_context = [] if context is None else [context / name for name in names]
    for each in (path.with_name(f"{path.name}.dockerignore"), *of_context):
        if os.path.lexists(each):  # a broken link is an error, not a file without rules
            return _read(each, ignore.LARGEST_BYTES), each.name
    return None


def _read(path: Path, limit: int, *, flag: str = "") -> str:
    try:
        return untrusted.read_bytes(path, limit=limit, follow=True).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise untrusted.unreadable(path, error, flag=flag) from None
    except ValueError:
        raise UsageError(f"{quoted(str(path), limit=200)} is not a path", remedy="--file FILE") from None


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
    its name in a recipe, pulled if missing, or the one in a file of this machine; `engine`: returns the path
    of the bubblewrap that runs the steps, given a function that tests whether one does all that they may
    need."""

    name: str
    image: Callable[[str, Reference | None], Image]
    engine: Callable[[Callable[[str], bool]], str]


class Built(Struct, frozen=True, kw_only=True):
    """A built image. `steps`: the number of steps that can make a layer; `cached`: how many of them were in
    the cache."""

    image: Image
    steps: int
    cached: int
    warnings: tuple[str, ...] = ()
