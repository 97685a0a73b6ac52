"""The kernel's table of mounts: which file system a path lies on. The only reader of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from bareboat.files import kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted file system, as /proc/self/mountinfo has it; `kind` by its common name."""

    point: str
    source: str
    kind: str
    options: tuple[str, ...]


def mount_of(path: str) -> Mount:
    """The file system that a path lies on, or will lie on once it exists."""
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as stream:
            text = stream.read()
    except OSError:
        text = ""
    return find_mount(text, os.path.realpath(existing(path)))


def existing(path: str) -> str:
    """The path, or the nearest directory above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def find_mount(mountinfo: str, path: str) -> Mount:
    """The mount that holds a path (real, absolute). Source: proc_pid_mountinfo(5)."""
    best = Mount(point="", source="", kind="unknown", options=())
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if not dash or len(fields) < 6 or len(more) < 2:
            continue
        point = _unescaped(fields[4])
        # A later line lies over an earlier one at the same place.
        if (path.rstrip("/") + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best.point):
            options = dict.fromkeys([*fields[5].split(","), *(more[2].split(",") if len(more) > 2 else ())])
            best = Mount(
                point=point,
                source=_unescaped(more[1]),
                kind=kinds.common_name(more[0]),
                options=tuple(o for o in options if o in ("ro", "noexec", "nosuid", "nodev")),
            )
    return best


def names_of(path: str) -> tuple[str, ...]:
    """A path (real, absolute), and the other names by which mounts of the same file system show it."""
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as stream:
            return find_names(stream.read(), path)
    except OSError:
        return (path,)


def find_names(mountinfo: str, path: str) -> tuple[str, ...]:
    """As `names_of`, by this table. Source: proc_pid_mountinfo(5)."""
    table = []
    holds = None
    for line in mountinfo.splitlines():
        fields = line.partition(" - ")[0].split(" ")
        if len(fields) < 6:
            continue
        device, root, point = fields[2], _unescaped(fields[3]), _unescaped(fields[4])
        table.append((device, root, point))
        if _below(path, point) is not None and (holds is None or len(point) >= len(holds[2])):
            holds = table[-1]
    found = [path]
    if holds is not None:
        inner = _below(path, holds[2])
        whole = (holds[1].rstrip("/") + f"/{inner}").rstrip("/") or "/"
        for device, root, point in table:
            if device == holds[0] and (rest := _below(whole, root)) is not None:
                found.append((point.rstrip("/") + f"/{rest}").rstrip("/") or "/")
    return tuple(dict.fromkeys(found))


def _below(path: str, folder: str) -> str | None:
    """The path as seen from the directory, "" for that itself; None when it is not in it."""
    folder = folder.rstrip("/")
    if path == folder or (path == "/" and not folder):
        return ""
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
