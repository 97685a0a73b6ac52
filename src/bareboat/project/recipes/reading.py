"""The packages of a project, by its files; nothing of it is run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from msgspec.structs import replace

from bareboat.project import scripts, surroundings
from bareboat.project.recipes import foreign, lists, python_lists
from bareboat.project.recipes.listed import Listed, normal, unique
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
        if kind != "project" or python_lists.names_packages(_text(top / name)):
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


def read_inline(top: Path, script: str) -> Listed | None:
    """The packages in a script's own metadata (PEP 723); None without. Raises UsageError."""
    text = _text(top / script)
    try:
        found = python_lists.inline(text)
    except ValueError as error:
        raise UsageError(
            f"the metadata in {one_line(script)} cannot be read: {one_line(str(error))}",
            remedy="write it as PEP 723 has it: # /// script, TOML in comments, # ///",
        ) from None
    return None if found is None else replace(found, file=script)


def python_version(top: Path) -> str:
    """The content of .python-version; "" without one."""
    path = top / ".python-version"
    return _text(path)[:100] if path.is_file() else ""


def imported(top: Path, script: str, path: Iterable[str]) -> dict[str, str]:
    """The packages that a script imports -> the version that the environment `path` has, "" for none. Raises
    UsageError for a script that cannot be read."""
    read = scripts.read(top, script)
    if read.code.fault:
        raise UsageError(
            f"{one_line(script)} cannot be read: {read.code.fault}",
            remedy="name its packages in requirements.txt",
        )
    versions = {name: version for name, version, _ in _distributions(path)}
    return {
        normal(name): versions.get(normal(name), "") for name in surroundings.required(read.code, read.local)
    }


def installed(path: Iterable[str], prefix: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The packages of an environment with their versions, and what an image cannot be given of them."""
    versions: dict[str, str] = {}
    left_out: list[str] = []
    for name, version, origin in _distributions(path):
        if name in ("pip", "setuptools", "wheel", "bareboat") or name in versions:
            continue
        if origin:
            left_out.append(f"{name}: {origin}")
        else:
            versions[name] = version
    if not versions:
        raise UsageError(
            f"the environment {prefix} has no packages",
            remedy="activate the environment, or name a list of packages: --from requirements.txt",
        )
    return versions, unique(left_out)


def _distributions(path: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    """Name, version, and, where it did not come from an index, its origin."""
    for each in metadata.distributions(path=list(path)):
        try:
            name, version = each.metadata["Name"], each.version
            origin = _origin(each.read_text("direct_url.json"))
        except (KeyError, OSError, ValueError, TypeError):
            continue
        if name and version and _VERSION.fullmatch(version):
            yield normal(one_line(name)), version, origin


def _origin(text: str | None) -> str:
    if not text:
        return ""
    found = foreign.from_json(text)
    url = one_line(found.text("url"))
    if "dir_info" in found:
        is_editable = found.table("dir_info").flag("editable")
        return f"an {'editable ' if is_editable else ''}install of {url}"
    return f"installed from {url}"


def _text(path: Path) -> str:
    try:
        return untrusted.read_bytes(path, limit=_LARGEST, follow=True).decode()
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    except ValueError:
        raise UsageError(f"{path} is not UTF-8 text", remedy=f"file {shlex.quote(str(path))}") from None
