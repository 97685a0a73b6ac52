"""A recipe's steps, from which both formats are written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`why`: the comments above it, each a paragraph."""

    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Step):
    """Commands of the shell; each must succeed. `network`: they download, with the user's settings of pip and
    certificates; `mounts`: stage -> directory of it that
    they see."""

    commands: tuple[str, ...]
    network: bool = False
    mounts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Step):
    """Files of the context, of another stage or of another image (`source`)."""

    files: tuple[str, ...]
    target: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Env(Step):
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arg(Step):
    """A value that RUN sees, and the image does not keep. `internal`: no builder needs to set it."""

    name: str
    value: str
    internal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workdir(Step):
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`base`: an image, or the name of a stage above. `name`: "" for the last."""

    base: str
    name: str = ""
    why: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """`head`: comments about all of it. `images`: other images from which files are copied: name -> image."""

    head: tuple[str, ...]
    stages: tuple[Stage, ...]
    images: Mapping[str, str]
