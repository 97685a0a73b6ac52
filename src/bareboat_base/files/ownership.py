"""Which files are trusted: those that only this user or root could have written or created.

A path is trusted when it and every directory above it belong to the user or to root, and nobody else may
write to them. Links are followed one by one: both a link's location and its target must be trusted.

- Others may write to a sticky directory of root or the user, such as /tmp: they cannot replace others' files,
and
what they create belongs to them. This exception does not apply to the path itself. - Group write permission
counts as writable by others. Two exceptions: the group root, and a user-private group,
  which has the user's name and no other members (as made by `useradd`, with umask 002).
- The checked bits include POSIX ACLs, whose mask takes the place of the group's bits; with an ACL no group is
private. NFSv4 ACLs are only known as far as the server shows them in the mode. - In a user namespace without
root, root's files appear to belong to nobody. There, directories above the path and
  files below /etc may belong to nobody; programs and settings may not.

Sources: ssh_config(5), StrictModes in sshd_config(5), safe.directory in git-config(1), acl(5).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MOST_LINKS = 40  # the kernel's limit: path_resolution(7)
_ACL = "system.posix_acl_access"


class Doubt(NamedTuple):
    """Why a path is not trusted: the place, the reason, and the remedy for its owner."""

    place: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place} {self.reason}"


def doubt(path: str | Path) -> Doubt | None:
    """The first reason not to trust a path, from the root directory down; None when it is trusted.

    Only the existing part of the path is checked. Costs one lstat(2) per component.
    """
    return next(doubts(path), None)


def doubts(path: str | Path) -> Iterator[Doubt]:
    """All reasons, in the same order."""
    pending = [part for part in os.path.abspath(path).split("/") if part][::-1]
    here, links = "/", 0
    found = os.lstat("/")
    nobody = found.st_uid if found.st_uid not in (0, os.geteuid()) else None  # root, in a user namespace
    if reason := _doubt_of("/", found, nobody, last=not pending):
        yield reason
    while pending:
        part = pending.pop()
        if part == "..":  # in a link's target; `here` holds no links
            here = os.path.dirname(here)
            continue
        place = os.path.join(here, part)
        try:
            found = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            yield Doubt(place, f"cannot be examined: {error.strerror}", f"ls -ld {_quoted(here)}")
            return
        is_link = stat.S_ISLNK(found.st_mode)
        if reason := _doubt_of(place, found, nobody, last=not pending and not is_link):
            yield reason
        if is_link:
            links += 1
            if links > _MOST_LINKS:
                yield Doubt(place, "is one of too many symbolic links", f"ls -l {_quoted(place)}")
                return
            target = os.readlink(place)
            here = "/" if target.startswith("/") else here
            pending += [part for part in target.split("/") if part not in ("", ".")][::-1]
        else:
            here = place


def doubt_within(root: str | Path, path: str | Path) -> Doubt | None:
    """Like `doubt`, for a path below a directory that is already trusted. Links are only allowed to a file in
    the same directory."""
    here = str(root)
    for part in os.path.relpath(path, root).split("/"):
        here = os.path.join(here, part)
        try:
            found = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(found.st_mode) and (here != str(path) or "/" in os.readlink(here)):
            return Doubt(here, "is a symbolic link", f"ls -l {_quoted(here)}")
        if reason := _doubt_of(here, found, None, last=True):
            return reason
    return None


def temporary_directory() -> str:
    """The directory for temporary files: Python's choice (TMPDIR first), or the next one where another user
    could put a file in the place of another."""
    import tempfile  # most processes do without it

    chosen = tempfile.gettempdir()
    places = (chosen, "/tmp", "/var/tmp", "/dev/shm")
    return next((each for each in places if _is_safe_to_fill(each)), chosen)


def _is_safe_to_fill(directory: str) -> bool:
    new = os.path.join(directory, "new")  # sticky directories of root are safe above a path only
    return os.access(directory, os.W_OK | os.X_OK) and doubt(new) is None


def name_of(uid: int) -> str:
    """The user's name for display; the ID without a name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _doubt_of(place: str, found: os.stat_result, nobody: int | None, *, last: bool) -> Doubt | None:
    own = os.geteuid()
    unmapped = nobody is not None and found.st_uid == nobody and (not last or place.startswith("/etc/"))
    if found.st_uid not in (0, own) and not unmapped:
        return Doubt(place, f"belongs to {name_of(found.st_uid)}", f"ls -ld {_quoted(place)}")
    mode = found.st_mode
    if stat.S_ISLNK(mode) or not mode & 0o022:
        return None
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX and not last:
        return None
    if mode & 0o002:
        return Doubt(place, "is writable by every user", f"chmod go-w {_quoted(place)}")
    if found.st_gid == 0 or _is_private_group(place, found):
        return None
    return Doubt(place, f"is writable by the group {group_of(found.st_gid)}", f"chmod g-w {_quoted(place)}")


def _quoted(path: str) -> str:
    """The name for a command: whoever chose it may be a stranger."""
    import shlex  # most processes do without it

    return shlex.quote(path)


def _is_private_group(place: str, found: os.stat_result) -> bool:
    """Whether the group is the user's primary group, with their name and no other members."""
    if found.st_gid != os.getegid() or found.st_uid != os.geteuid():
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    if (user.pw_gid, user.pw_name) != (group.gr_gid, group.gr_name) or set(group.gr_mem) - {user.pw_name}:
        return False
    try:
        os.getxattr(place, _ACL)
    except OSError:  # no ACL, or not supported by the file system
        return True
    return False


def group_of(gid: int) -> str:
    """The group's name for display; the ID without a name."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"


def obstacle(path: Path) -> str | None:
    """Why this user cannot take a file or a tree out of its directory and remove it; None when they can."""
    own = os.geteuid()
    try:
        state, above = path.lstat(), path.parent.stat()
    except FileNotFoundError:
        return None
    if own == 0:
        return None
    whose = f"{path} belongs to {name_of(state.st_uid)}"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"{path.parent} cannot be written; {whose}"
    if above.st_mode & stat.S_ISVTX and own not in (state.st_uid, above.st_uid):
        return whose
    # What is in a tree goes one by one, and a tree of another's can neither be renamed nor emptied.
    return whose if stat.S_ISDIR(state.st_mode) and state.st_uid != own else None
