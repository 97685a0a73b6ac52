"""Who may use a store: its owner, or the members of a group that its owner named. Checked before each use.

your own store      mode 0700; its content is trusted
a group's store     made by `bareboat config store --group GROUP DIR`: images for its members. Nothing in it
                    is executed outside of containers: runs, scripts, programs and facts about the cluster
                    are in each member's own store
any other           refused: whoever can write to it decides what runs as this user
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from bareboat import consent
from bareboat_base import digests
from bareboat_base.errors import StoreError
from bareboat_base.files import ownership
from bareboat_base.files.mounts import existing
from bareboat_base.files.ownership import Doubt
from bareboat_base.printable import one_line

#: The remedy for a path that cannot be a store.
ELSEWHERE = "choose another directory, such as --store ~/bareboat, or BAREBOAT_STORE=~/bareboat"
#: Marks a group's store. The group is that of the directory.
MARK = "group"


def admit(root: Path, environment: Mapping[str, str], default: Callable[[], Path]) -> Path:
    """Check a store before anything in it is read. Returns the user's own store that belongs to it: the store
    itself, or for a group's store the one at the `default` place.

    Changes nothing. Raises StoreError for a store that others can write,
    with the path and a remedy.
    """
    check_place(root)
    if is_group_store(root):
        _check_member(root)
        _check_above(root)
        own = default()
        check_place(own)
        if is_group_store(own):
            raise StoreError(
                f"{root} is a group's store, and no directory is available for your own store",
                context=f"{own} is also a group's store",
                remedy="set XDG_DATA_HOME=DIR",
            )
        root = own
    found = list(ownership.doubts(root))
    if found:
        try:
            state = os.stat(root)
        except OSError:
            state = None
        if not _is_own(root, found, state) or not consent.is_given(root, _digest(found), environment):
            raise _refused(root, found, state)
    return root


def check_place(root: Path) -> None:
    """Raise StoreError for a path that is not a directory and cannot become one, or one that is closed."""
    above = existing(str(root))
    if not os.path.isdir(above):
        why = "" if above == str(root) else f": {above} is a file"
        raise StoreError(
            f"the store {root} is not a directory{why}",
            key="store",
            remedy=ELSEWHERE,
        )
    names = [os.fsencode(part) for part in root.parts]
    if max(map(len, names)) > os.pathconf(above, "PC_NAME_MAX") or len(os.fsencode(root)) >= os.pathconf(
        above, "PC_PATH_MAX"
    ):
        raise StoreError(
            f"the name of the store is too long: {one_line(str(root), limit=100)}",
            key="store",
            remedy=ELSEWHERE,
        )
    if not os.access(above, os.X_OK):
        raise StoreError(
            f"you may not use the store {root}",
            context=f"{above} cannot be entered",
            key="store",
            remedy=ELSEWHERE,
        )


def is_group_store(root: Path) -> bool:
    return (root / MARK).is_file()


def agree(root: Path, environment: Mapping[str, str]) -> list[Doubt]:
    """Store the user's consent to directories above a store that others may write to; return them. Raises
    StoreError for a store that belongs to another user."""
    found = list(ownership.doubts(root))
    state = os.stat(root)
    if not _is_own(root, found, state):
        raise _refused(root, found, state)
    consent.give(root, _digest(found), environment)
    return found


def _check_member(root: Path) -> None:
    state = os.stat(root)
    if state.st_gid not in (os.getegid(), *os.getgroups()):
        raise StoreError(
            f"the store {root} is for the group {ownership.group_of(state.st_gid)}, and you are not a member",
            key="store",
            remedy=ELSEWHERE,
        )
    if state.st_mode & 0o022:
        raise StoreError(
            f"the group's store {root} has unsafe permissions",
            context=f"with mode {stat.S_IMODE(state.st_mode):o}, users other than its owner may change it",
            remedy=f"ask {ownership.name_of(state.st_uid)} to repeat: bareboat config store --group "
            f"{ownership.group_of(state.st_gid)} {shlex.quote(str(root))}",
        )


def _check_above(root: Path) -> None:
    """Refuse a group's store that every user of the machine could exchange. What members can do above it,
    they can do in it."""
    for above in dict.fromkeys((*root.absolute().parents, *root.resolve().parents)):
        mode = os.stat(above).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise StoreError(
                f"the group's store {root} is not used: every user can put another in its place",
                context=f"{above} is writable by every user",
                remedy=f"chmod o-w {shlex.quote(str(above))}   # as its owner; or another store: --store DIR",
            )


def _is_own(root: Path, found: list[Doubt], state: os.stat_result | None) -> bool:
    """Whether only directories above the store are in doubt."""
    real = os.path.realpath(root)
    return (state is None or state.st_uid == os.geteuid()) and all(doubt.place != real for doubt in found)


def _digest(found: list[Doubt]) -> str:
    return "above:" + consent.digest_of({doubt.place: doubt.reason for doubt in found})


def _refused(root: Path, found: list[Doubt], state: os.stat_result | None) -> StoreError:
    quoted = shlex.quote(str(root))
    real = os.path.realpath(root)
    if not found:  # of a user who may change every file anyway
        return StoreError(
            f"{root} belongs to {ownership.name_of(0 if state is None else state.st_uid)}, and is no store",
            remedy="name your own store: bareboat config trust DIR",
        )
    doubt = found[-1]
    if doubt.place == real:  # what others may have put into it is not known
        remedy = (
            "choose a store of your own: --store DIR, or BAREBOAT_STORE=DIR; to share images: "
            "bareboat config store --group GROUP DIR"
        )
    else:
        remedy = (
            f"{doubt.remedy}, or use another directory: --store DIR; if you trust all who can write there: "
            f"bareboat config trust {quoted}"
        )
    return StoreError(
        f"the store {root} is not used: others can change it, and so what runs as you",
        context="\n".join(map(str, found)),
        remedy=remedy,
    )


#: The directories of a group's store. Any member may replace names and pins; in the other directories, only
#: its owner may remove an entry.
_GROUPS_OWN = ("names", "pins", "leases", "captures")
_BY_DIGEST = ("layers", "parts", "flat", "roots", "relinked", "packed", "blobs", "images")
_BY_MAKER = (*(f"{name}/{digests.ALGORITHM}" for name in _BY_DIGEST), "tmp")


def make_group_store(root: Path, gid: int, version: str) -> None:
    """Make a group's store, or restore its modes. Raises StoreError for a directory that holds anything else,
    and for one that others than the group may change."""
    if root.is_dir() and not is_group_store(root) and any(root.iterdir()):
        raise StoreError(
            f"{root} is not empty and not a group's store",
            remedy="use a new directory; copy images with: bareboat image save, bareboat image load",
        )
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = os.stat(root)
    if state.st_uid != os.geteuid():
        raise _refused(root, list(ownership.doubts(root)), state)
    try:
        os.chown(root, -1, gid)
        os.chmod(root, 0o2750)
        for name in (*_GROUPS_OWN, *_BY_MAKER):
            folder = root
            for part in name.split("/"):
                folder = folder / part
                folder.mkdir(exist_ok=True)
                os.chown(folder, -1, gid)
                os.chmod(folder, 0o2770 if name in _GROUPS_OWN else 0o3770)
        for name, text in (("version", version), (MARK, ownership.group_of(gid))):
            (root / name).write_text(text + "\n")
            os.chown(root / name, -1, gid)
            os.chmod(root / name, 0o640)
    except PermissionError as error:
        raise StoreError(
            f"{root} cannot become a store of the group {ownership.group_of(gid)}",
            context=str(error),
            remedy="only the directory's owner, as a member of the group, can do this; check: id",
        ) from None
