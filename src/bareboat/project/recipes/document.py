"""A recipe's steps, from which both formats are written. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Step(Struct, frozen=True, kw_only=True):
    """`why`: the comments above it, each a paragraph."""

    why: tuple[str, ...] = ()


class Run(Step, frozen=True, kw_only=True):
    """Commands of the shell; each must succeed. `network`: they download, with the user's settings of pip and
    certificates; `mounts`: stage -> directory of it that
    they see."""

    commands: tuple[str, ...]
    network: bool = False
    mounts: tuple[tuple[str, str], ...] = ()


class Copy(Step, frozen=True, kw_only=True):
    """Files of the context, of another stage or of another image (`source`)."""

    files: tuple[str, ...]
    target: str
    source: str = ""


class Env(Step, frozen=True, kw_only=True):
    values: Mapping[str, str]


class Arg(Step, frozen=True, kw_only=True):
    """A value that RUN sees, and the image does not keep. `internal`: no builder needs to set it."""

    name: str
    value: str
    internal: bool = False


class Workdir(Step, frozen=True, kw_only=True):
    path: str


class Stage(Struct, frozen=True, kw_only=True):
    """`base`: an image, or the name of a stage above. `name`: "" for the last."""

    base: str
    name: str = ""
    why: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


class Recipe(Struct, frozen=True, kw_only=True):
    """`head`: comments about all of it. `images`: other images from which files are copied: name -> image."""

    head: tuple[str, ...]
    stages: tuple[Stage, ...]
    images: Mapping[str, str]
