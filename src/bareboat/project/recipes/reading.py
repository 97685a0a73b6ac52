"""The packages of a project, by its files; nothing of it is run."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from bareboat.program_analysis.imports import OTHER_NAMES
from bareboat.project.recipes import lists
from bareboat.project.recipes.lists import Listed, normal
from bareboat.runs import code
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line

#: Lock files of real projects have up to some MB.
_LARGEST = 64 << 20
_VERSION = expression(r"[0-9A-Za-z.!+_-]{1,100}")


def find_list(top: Path) -> str | None:
    """The package list of a directory: the first of the known ones, with its companion."""
    for name, kind in lists.KINDS.items():
        companion = lists.COMPANIONS.get(kind)
        if not (top / name).is_file() or (companion is not None and not (top / companion).is_file()):
            continue
        if kind != "project" or lists.names_packages(_text(top / name)):
            return name
    return None


def read_list(top: Path, name: str) -> Listed:
    """Read a list, relative to `top`. Raises UsageError."""
    path = top / name
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise UsageError(
            f"the package list {one_line(name)} is outside the directory {top}",
            remedy="give the directory of the list: bareboat image init DIR --from FILE",
        )
    kind = lists.KINDS.get(os.path.basename(name), "requirements")
    companion = ""
    if (other := lists.COMPANIONS.get(kind)) is not None:
        companion = _text(path.with_name(other))
    return lists.read(name, _text(path), companion)


def imported(top: Path, script: str, path: Iterable[str]) -> dict[str, str]:
    """The packages that a script and its modules import -> the version that the environment `path` has, ""
    for none. Raises UsageError for a script that cannot be read."""
    read = code.merged(top, script)
    if read.fault:
        raise UsageError(
            f"{one_line(script)} cannot be read: {read.fault}",
            remedy="name its packages in requirements.txt",
        )
    versions = dict(_distributions(path))
    names = {each.package for each in read.imports if each.is_outer}
    foreign = sorted(names - {""} - set(sys.stdlib_module_names) - code.own_packages(top, script))
    asked = dict.fromkeys(normal(OTHER_NAMES.get(name, name)) for name in foreign)
    return {name: versions.get(name, "") for name in asked if name}


def _distributions(path: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Name and version of what is installed, the first that Python finds last."""
    for each in reversed(list(metadata.distributions(path=list(path)))):
        with contextlib.suppress(KeyError, OSError, ValueError, TypeError):
            name, version = each.metadata["Name"], each.version
            if name and version and _VERSION.fullmatch(version):
                yield normal(one_line(name)), version


def _text(path: Path) -> str:
    try:
        return untrusted.read_bytes(path, limit=_LARGEST, follow=True).decode()
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    except ValueError:
        raise UsageError(f"{path} is not UTF-8 text", remedy=f"file {shlex.quote(str(path))}") from None
