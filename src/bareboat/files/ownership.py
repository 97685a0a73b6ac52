"""Whose files are believed: those that only this user, or root, could have written or put there.

A path is believed when it and every directory above it belong to the user or to root and nobody else may
write to them. Links are followed one by one: a link's place must be believed as well as its target.

- Others may write to a sticky directory of root's or the user's, such as /tmp: they cannot replace what is
  not theirs, and what they put there belongs to them. It is no exception for the path itself.
- Group write counts as written by others. Two exceptions: the group root, and a user-private group, which
  has the user's own name and no other members (as `useradd` makes it, with umask 002).
- The bits that are checked include POSIX ACLs, whose mask stands in the place of the group's bits; with an
  ACL no group is private. NFSv4's ACLs are known only as far as the server shows them in the mode.
- In a user namespace without root, root's files appear as nobody's. There directories above the path, and
  what lies below /etc, may be nobody's; what is started or read for its settings may not.

Sources: ssh_config(5), StrictModes in sshd_config(5), safe.directory in git-config(1), acl(5).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MOST_LINKS = 40  # as in the kernel: path_resolution(7)
_ACL = "system.posix_acl_access"


class Doubt(NamedTuple):
    """Why a path is not believed: the place in question, what is wrong with it, and what its owner can do."""

    place: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place} {self.reason}"


def doubt(path: str | Path) -> Doubt | None:
    """The first reason not to believe a path, from the root directory down; None when it is believed.

    What does not exist yet cannot be doubted: only what exists of the path is checked. Costs one lstat(2) for
    each component.
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
        if part == "..":  # of a link's target; `here` holds no links
            here = os.path.dirname(here)
            continue
        place = os.path.join(here, part)
        try:
            found = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            yield Doubt(place, f"cannot be examined: {error.strerror}", f"ls -ld {here}")
            return
        is_link = stat.S_ISLNK(found.st_mode)
        if reason := _doubt_of(place, found, nobody, last=not pending and not is_link):
            yield reason
        if is_link:
            links += 1
            if links > _MOST_LINKS:
                yield Doubt(place, "is one of too many symbolic links", f"ls -l {place}")
                return
            target = os.readlink(place)
            here = "/" if target.startswith("/") else here
            pending += [part for part in target.split("/") if part not in ("", ".")][::-1]
        else:
            here = place


def doubt_within(root: str | Path, path: str | Path) -> Doubt | None:
    """The same for a path below a directory that is believed already. No link leads there, but to a file
    beside it."""
    here = str(root)
    for part in os.path.relpath(path, root).split("/"):
        here = os.path.join(here, part)
        try:
            found = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(found.st_mode) and (here != str(path) or "/" in os.readlink(here)):
            return Doubt(here, "is a symbolic link", f"ls -l {here}")
        if reason := _doubt_of(here, found, None, last=True):
            return reason
    return None


def name_of(uid: int) -> str:
    """The user's name, for people; the number where it has none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _doubt_of(place: str, found: os.stat_result, nobody: int | None, *, last: bool) -> Doubt | None:
    own = os.geteuid()
    unmapped = nobody is not None and found.st_uid == nobody and (not last or place.startswith("/etc/"))
    if found.st_uid not in (0, own) and not unmapped:
        return Doubt(place, f"belongs to {name_of(found.st_uid)}", f"ls -ld {place}")
    mode = found.st_mode
    if stat.S_ISLNK(mode) or not mode & 0o022:
        return None
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX and not last:
        return None
    if mode & 0o002:
        return Doubt(place, "can be written by every user", f"chmod go-w {place}")
    if found.st_gid == 0 or _is_private_group(place, found):
        return None
    return Doubt(place, f"can be written by the group {group_of(found.st_gid)}", f"chmod g-w {place}")


def _is_private_group(place: str, found: os.stat_result) -> bool:
    """Whether the group is the user's alone: their primary group, with their name and no other members."""
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
    except OSError:  # there is none, or the file system has no such ACLs
        return True
    return False


def group_of(gid: int) -> str:
    """The group's name, for people; the number where it has none."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"
