"""A rule, the input of its checks, and their results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from bareboat_images.lint.image import ImageSubject
    from bareboat_images.lint.recipe import RecipeSubject


class Severity(StrEnum):
    """Severity of a finding. ERROR: does not work on a cluster, or publishes a secret; WARNING: wastes space,
    or breaks elsewhere; INFO: informative."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Hit(Struct, frozen=True, kw_only=True):
    """A result of a check. `line`, `last`: in a Dockerfile; `layer`: of an image, from 1; `paths`: examples;
    `size_bytes`, `files`: the cost; `severity`, `remedy`: override the rule's."""

    message: str
    line: int = 0
    last: int = 0
    layer: int = 0
    paths: tuple[str, ...] = ()
    size_bytes: int = 0
    files: int = 0
    severity: Severity | None = None
    remedy: str = ""


class FileSystem(Protocol):
    """`purpose`: "store" for the one that holds the store; `free_inodes`: 0 where unknown."""

    @property
    def purpose(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def free_inodes(self) -> int: ...


class Machine(Protocol):
    """`cpu_model`: as in /proc/cpuinfo."""

    @property
    def hostname(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def cpu_model(self) -> str: ...
    @property
    def file_systems(self) -> Sequence[FileSystem]: ...


class Rule(Struct, frozen=True, kw_only=True):
    """One rule. `title`: the problem, in one sentence; `why`: its consequence; `bad`, `good`: a Dockerfile
    with the problem, and the same one corrected; `site`: it has checks against a site."""

    code: str
    title: str
    why: str
    remedy: str
    severity: Severity = Severity.WARNING
    recipe: Callable[[RecipeSubject], Iterable[Hit]] | None = None
    image: Callable[[ImageSubject], Iterable[Hit]] | None = None
    bad: str = ""
    good: str = ""
    site: bool = False


class Finding(Struct, frozen=True, kw_only=True):
    """A hit with its rule. `source`: bareboat or hadolint; `share`: of the image's bytes."""

    code: str
    severity: Severity
    message: str
    remedy: str
    source: str = "bareboat"
    line: int = 0
    last: int = 0
    layer: int = 0
    instruction: str = ""
    paths: tuple[str, ...] = ()
    size_bytes: int = 0
    files: int = 0
    share: float = 0.0

    @property
    def saves(self) -> bool:
        """Whether its bytes are useless, so that the image can shrink."""
        return self.code.startswith("BB10")

    @property
    def order(self) -> tuple[int, int, int, int, str]:
        """Sort key: most bytes first, then by severity and position."""
        return -self.size_bytes, -self.severity.rank, self.layer, self.line, self.code


def finding(rule: Rule, hit: Hit, *, instruction: str = "", total_bytes: int = 0) -> Finding:
    """Make the finding for a hit of this rule."""
    return Finding(
        code=rule.code,
        severity=hit.severity or rule.severity,
        message=hit.message,
        remedy=hit.remedy or rule.remedy,
        line=hit.line,
        last=hit.last,
        layer=hit.layer,
        instruction=instruction,
        paths=hit.paths,
        size_bytes=hit.size_bytes,
        files=hit.files,
        share=hit.size_bytes / total_bytes if total_bytes else 0.0,
    )


def files(count: int) -> str:
    """A number of files."""
    return f"{count:,} file{'' if count == 1 else 's'}"


def size(size_bytes: int) -> str:
    """Format a size for people."""
    if size_bytes >= 10**9:
        return f"{size_bytes / 1e9:,.2f} GB"
    if size_bytes >= 10**6:
        return f"{size_bytes / 1e6:,.1f} MB"
    return f"{size_bytes / 1e3:,.1f} kB" if size_bytes >= 1000 else f"{size_bytes} bytes"
