"""Volumes, variables, users and images as Docker and udocker write them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bareboat.api import images
from bareboat.model import Mount
from bareboat_base.errors import UsageError
from bareboat_base.files.root import Root
from bareboat_shim.table import Malformed, Mistake, lines_of_file

#: Options of volumes that change nothing here: labels, caches and propagation.
_NO_EFFECT = frozenset((
    "rw", "z", "Z", "cached", "delegated", "consistent", "private", "rprivate", "shared", "rshared", "slave",
    "rslave", "bind", "rbind", "nocopy",
))  # fmt: skip


#: Linux has at most 8,192 processors.
_LAST_PROCESSOR = 1 << 16


class Entry(NamedTuple):
    """A line of /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str


def variables(values: Sequence[str], outside: Mapping[str, str]) -> dict[str, str]:
    """NAME=VALUE, or NAME with the shell's value, if it has one. Raises Malformed."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name:
            raise Malformed(f"invalid environment variable: {value}", "--env NAME=VALUE")
        if equals:
            found[name] = text
        elif name in outside:
            found[name] = outside[name]
    return found


def of_file(path: str, outside: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file: a line is NAME=VALUE without quotes, or NAME. Raises Mistake."""
    lines = [line.lstrip() for line in lines_of_file(path)]
    return variables([line for line in lines if line and not line.startswith("#")], outside)


def mount(source: str, target: str, options: Sequence[str], written: str) -> Mount:
    """Raises Mistake for a mount that cannot be."""
    if unknown := [each for each in options if each not in _NO_EFFECT and each not in ("ro", "readonly")]:
        raise Mistake(f"{written}: the option {unknown[0]} is not supported", "use ro or rw")
    if not target.startswith("/") or os.path.normpath(target) == "/":
        raise Mistake(f"{written}: invalid path in the container: {target}", "-v /SOURCE:/TARGET")
    if not os.path.exists(source):
        raise Mistake(f"{written}: {source} does not exist", f"mkdir -p {shlex.quote(source)}")
    is_writable = "ro" not in options and "readonly" not in options
    return Mount(source=os.path.abspath(source), target=os.path.normpath(target), writable=is_writable)


def in_order(mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """One mount for each target, the last one; an inner one after the one around it."""
    found = {each.target: each for each in mounts}
    return tuple(sorted(found.values(), key=lambda each: each.target.split("/")))


def use_processors(text: str) -> None:
    """Run on these processors: `0,2-3`. Raises Mistake."""
    try:
        ends = [part.split("-") for part in text.split(",")]
        if any(int(end[-1]) > _LAST_PROCESSOR for end in ends):
            raise ValueError
        os.sched_setaffinity(0, {n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)})
    except (OSError, ValueError):
        raise Mistake(f"--cpuset-cpus {text}: no such processors here", "nproc   # counts them") from None


def entry(path: str | None, text: str) -> Entry | None:
    """The user with this name or ID in a file in the form of /etc/passwd."""
    for fields in _fields(path):
        if (
            len(fields) >= 6
            and text in (fields[0], fields[2])
            and is_number(fields[2])
            and is_number(fields[3])
        ):
            return Entry(fields[0], int(fields[2]), int(fields[3]), fields[5])
    return None


def is_number(text: str) -> bool:
    """Whether it is an ID, or a count, which are at most ten digits."""
    return text.isascii() and text.isdigit() and len(text) <= 10


def _fields(path: str | None) -> list[list[str]]:
    lines = "" if path is None else Root().text(path)
    return [line.split(":") for line in lines.split("\n")]


#: In names of the store; no part of a reference has these characters in this order.
_SLASH, _PORT = "-.", ".-"
_HUB, _OFFICIAL = "docker.io", "library/"


class Name(NamedTuple):
    """An image as Docker names it. `repository`: without Docker Hub's own parts; `reference`: its whole
    name."""

    repository: str
    tag: str
    reference: str

    @property
    def written(self) -> str:
        return f"{self.repository}:{self.tag}" if self.tag else self.repository

    @property
    def local(self) -> str:
        """The name in the store of an image that was built or tagged here."""
        return f"{self.repository.replace('/', _SLASH).replace(':', _PORT)}:{self.tag or 'latest'}"

    @property
    def own(self) -> tuple[str, ...]:
        """What an image of the store may be called that has this name here: a name of Bareboat needs no tag,
        and an ID is the beginning of a digest."""
        return tuple(dict.fromkeys((self.local, self.local.removesuffix(":latest"))))


def name(text: str) -> Name:
    """Raises UsageError."""
    found = images.parse(text)
    repository = f"{found.registry}/{found.repository}"
    if found.registry == _HUB:
        repository = found.repository.removeprefix(_OFFICIAL)
    return Name(repository, found.tag or "", str(found))


def of_store(text: str) -> Name | None:
    """The image with this reference or name in the store; None for a name that Docker does not have."""
    if "/" not in text:
        plain, _, tag = text.partition(":")
        text = f"{plain.replace(_SLASH, '/').replace(_PORT, ':')}:{tag or 'latest'}"
    try:
        return name(text)
    except UsageError:
        return None
