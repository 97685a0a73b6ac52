"""Paths in the root file system of a stage: links resolved, and which directories are missing."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence

from msgspec import Struct

from bareboat_base.files.links import MOST_LINKS
from bareboat_base.printable import quoted
from bareboat_images.layers.view import Node, View

#: The user and the group of a file.
Owner = tuple[int, int]


class Place(Struct, frozen=True, kw_only=True):
    """A path in a tree. `path`: links resolved; `node`: the entry, None if it does not exist; `missing`: its
    parent directories that do not exist, outermost first."""

    path: str
    node: Node | None
    missing: tuple[str, ...] = ()


#: Docker's and Podman's; 2^32 - 1 would mean "no change" to the kernel.
LARGEST_ID = 2**31 - 1


class PlaceError(ValueError):
    """A path cannot be resolved; the text is the reason."""


def locate(view: View, path: str, *, last_link: bool = True) -> Place:
    """Resolve a path inside the tree. Without `last_link`, a link at its end is not followed. Raises
    PlaceError."""
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here = ""
    missing: list[str] = []
    node = _node(view, "/")
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            here = posixpath.dirname(here).rstrip("/")
            missing = [each for each in missing if f"{here}/".startswith(f"{each}/")]
            node = None if missing else _node(view, here or "/")
            continue
        step = f"{here}/{part}"
        found = None if missing else view.names(here or "/").get(part)
        if found is not None and found.kind == "link" and (pending or last_link):
            links += 1
            if links > MOST_LINKS:
                raise PlaceError(f"{path} has too many symbolic links")
            target = os.readlink(found.places[0])
            if target.startswith("/"):
                here = ""
            pending += [each for each in reversed(target.split("/")) if each not in ("", ".")]
            continue
        if found is not None and found.kind != "folder" and pending:
            raise PlaceError(f"{step} is not a directory")
        if found is None and pending:
            missing.append(step)
        here, node = step, found
    return Place(path=here or "/", node=node, missing=tuple(missing))


def _node(view: View, path: str) -> Node | None:
    found = view.find(path)
    return found.node if found is not None else None


def joined(workdir: str, path: str) -> str:
    """The absolute path for a path in an instruction, relative to the working directory."""
    return "/" + posixpath.normpath(posixpath.join("/", workdir, path)).lstrip("/")


class User(Struct, frozen=True, kw_only=True):
    """The user of a step. `name`: empty for a number without a name."""

    uid: int = 0
    gid: int = 0
    home: str = "/root"
    name: str = "root"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def number_fault(text: str) -> str | None:
    """Why a text is no ID although it has digits only, as Docker reads them; None: it is one, or a name."""
    if not _is_number(text) or (len(text) <= 10 and int(text) <= LARGEST_ID):
        return None
    return f"{text} is no user or group ID: the largest is {LARGEST_ID}"


def find_user(view: View, text: str) -> User:
    """The user of `USER NAME[:GROUP]`, from /etc/passwd and /etc/group of the tree. Raises PlaceError for an
    unknown name."""
    wanted, _, group = text.partition(":")
    rows = _table(view, "/etc/passwd", 7)
    found = None
    for each in (wanted, group):
        if (fault := number_fault(each)) is not None:
            raise PlaceError(fault)
    if _is_number(wanted):
        uid = int(wanted)
        row = next((row for row in rows if row[2] == wanted), None)
        # Without a line in /etc/passwd, the group ID is the user ID.
        found = User(
            uid=uid,
            gid=_number(row[3], uid) if row else uid,
            home=row[5] if row else "/",
            name=row[0] if row else "",
        )
    elif wanted:
        row = next((row for row in rows if row[0] == wanted), None)
        if row is None and wanted == "root":
            found = User()
        elif row is not None:
            found = User(uid=_number(row[2], 0), gid=_number(row[3], 0), home=row[5] or "/", name=wanted)
    if found is None:
        raise PlaceError(f"the user {quoted(wanted)} is not in the image's /etc/passwd")
    if "\0" in found.home + found.name:
        raise PlaceError(f"the line of the user {quoted(wanted)} in the image's /etc/passwd has a NUL byte")
    if not group:
        return found
    if _is_number(group):
        gid = int(group)
    else:
        line = next((row for row in _table(view, "/etc/group", 3) if row[0] == group), None)
        if line is None:
            raise PlaceError(f"the group {quoted(group)} is not in the image's /etc/group")
        gid = _number(line[2], 0)
    return User(uid=found.uid, gid=gid, home=found.home, name=found.name)


def find_owner(view: View, text: str) -> User:
    """The owner of `--chown`: like `find_user`, but a bare number is also the number of the group, and the
    user is root if only the group is named."""
    if text.startswith(":") and text[1:]:
        text = f"0{text}"
    return find_user(view, f"{text}:{text}" if text.isascii() and text.isdigit() else text)


def _table(view: View, path: str, columns: int) -> Sequence[list[str]]:
    data = view.read(path, most=1 << 20) or b""
    rows = [row.split(":") for row in data.decode(errors="replace").split("\n")]
    return [row for row in rows if len(row) >= columns]


def _number(text: str, otherwise: int) -> int:
    valid = text.isascii() and text.isdigit() and number_fault(text) is None
    return int(text) if valid else otherwise
