"""The kernel's mount table: the file system of a path. The only reader of the table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bareboat_base.files import kinds

#: The options of a mount that decide what programs may do there.
_PERMITS = ("ro", "noexec", "nosuid", "nodev")


class Mount(NamedTuple):
    """One mounted file system, from /proc/self/mountinfo; `kind` by its common name."""

    point: str
    source: str
    kind: str
    options: tuple[str, ...]


def mount_of(path: str) -> Mount:
    """The file system of a path, which need not exist yet."""
    return find_mount(_table(), os.path.realpath(existing(path)))


def _table() -> str:
    try:
        return table_of("self")
    except OSError:
        return ""


def table_of(pid: str) -> str:
    """The table that a process sees. Raises OSError."""
    with open(f"/proc/{pid}/mountinfo", errors="surrogateescape") as stream:
        return stream.read()


class Line(NamedTuple):
    """A line of the table. `number`: of the mount, as in the table of open files."""

    number: str
    device: str
    root: str
    point: str
    options: list[str]
    kind: str
    source: str


def lines(mountinfo: str) -> Iterator[Line]:
    """Each line that is understood; a later one lies over an earlier one at the same place.

    Source: proc_pid_mountinfo(5).
    """
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if dash and len(fields) >= 6 and len(more) >= 2:
            options = [*fields[5].split(","), *(more[2].split(",") if len(more) > 2 else ())]
            yield Line(fields[0], fields[2], _unescaped(fields[3]), _unescaped(fields[4]), options, more[0],
                        _unescaped(more[1]))  # fmt: skip


def _holding(table: Iterable[Line], path: str) -> Line | None:
    best = None
    for line in table:
        if _below(path, line.point) is not None and (best is None or len(line.point) >= len(best.point)):
            best = line
    return best


def existing(path: str) -> str:
    """The path, or the nearest existing directory above it."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def closed_directory(path: str | Path) -> str | None:
    """The first directory above the path that this user may not enter."""
    above = Path(os.path.abspath(path)).parents
    return next(
        (str(each) for each in reversed(above) if os.path.isdir(each) and not os.access(each, os.X_OK)), None
    )


def find_mount(mountinfo: str, path: str) -> Mount:
    """The mount that holds a path (real, absolute)."""
    found = _holding(lines(mountinfo), path)
    if found is None:
        return Mount(point="", source="", kind="unknown", options=())
    options = tuple(each for each in dict.fromkeys(found.options) if each in _PERMITS)
    return Mount(point=found.point, source=found.source, kind=kinds.common_name(found.kind), options=options)


def names_of(path: str) -> tuple[str, ...]:
    """A path (real, absolute) and its other names under mounts of the same file system."""
    return find_names(_table(), path)


def find_names(mountinfo: str, path: str) -> tuple[str, ...]:
    """Like `names_of`, for this table."""
    table = list(lines(mountinfo))
    return names_among(table, path, table)


def names_among(theirs: Iterable[Line], path: str, own: Iterable[Line]) -> tuple[str, ...]:
    """A path in one table and the names of its file in another, under mounts of the same file system."""
    found = [path]
    holds = _holding(theirs, path)
    if holds is not None:
        inner = _below(path, holds.point)
        whole = (holds.root.rstrip("/") + f"/{inner}").rstrip("/") or "/"
        for line in own:
            if line.device == holds.device and (rest := _below(whole, line.root)) is not None:
                found.append((line.point.rstrip("/") + f"/{rest}").rstrip("/") or "/")
    return tuple(dict.fromkeys(found))


def _below(path: str, folder: str) -> str | None:
    """The path relative to the directory, "" for the directory itself; None when outside."""
    folder = folder.rstrip("/")
    if path == folder or (path == "/" and not folder):
        return ""
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text) if "\\" in text else text
