"""Choose the store's directory when none is configured.

An existing store wins, so most calls query no file system. Otherwise the site's large file systems come
before the home directory, which has few inodes on most clusters. The choice and its reason are reported in
one sentence. The choice is pure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from bareboat_base.alternatives import Rejected
from bareboat_base.files import ownership
from bareboat_base.files.kinds import IN_MEMORY
from bareboat_base.files.mounts import existing, mount_of
from bareboat_images.place import Room

#: Variables with a user's directory on a large file system, best first.
VARIABLES = (
    "SCRATCH", "PSCRATCH", "CSCRATCH", "GSCRATCH", "MYSCRATCH", "SCRATCHDIR", "SCRATCH_DIR",
    "WORK", "WORKDIR", "WORK_DIR", "PROJECT", "PROJECT_DIR", "PROJECTDIR",
)  # fmt: skip

#: The space for a PyTorch image and runs with it.
WANTED_BYTES = 10 * 10**9
WANTED_INODES = 200_000


class Spot(Struct, frozen=True, kw_only=True):
    """Facts about a directory. `owned`: by this user. `store`: the path of this user's store that exists
    there. `doubt`: why another user could change a store there."""

    folder: bool
    writable: bool
    owned: bool
    kind: str
    options: tuple[str, ...]
    store: str | None
    doubt: str = ""


class Place(Struct, frozen=True, kw_only=True):
    """The store's place."""

    path: str
    reason: str
    rejected: tuple[Rejected, ...] = ()


class Probe(Protocol):
    """The facts about the machine that the choice needs."""

    def look(self, folder: str, stores: Sequence[str]) -> Spot:
        """The facts about a directory; `stores` are the candidate paths of a store in it."""
        ...

    def room(self, path: str) -> Room: ...


class _Candidate(Struct, frozen=True):
    """`own`: the store's path in this user's directory; `shared`: in a directory of several users."""

    name: str
    folder: str
    own: str
    shared: str


def choose(
    environment: Mapping[str, str],
    home: str,
    probe: Probe,
    is_of_a_job: Callable[[str], bool] = lambda _: False,
) -> Place:
    """Choose the store's place: an existing store, else the first good place with enough room, else the place
    with the most room.

    `environment` is the user's, `home` the home directory. `is_of_a_job`: whether a directory is removed when
    the scheduler's job around this process ends. Nothing is written.
    """
    candidates, avoided = _candidates(environment, home, is_of_a_job)
    spots = []
    for candidate in candidates:
        spot = probe.look(candidate.folder, (candidate.own, candidate.shared))
        if spot.store is not None:
            return Place(path=spot.store, reason=f"it already exists in {candidate.name}")
        spots.append((candidate, spot))
    scarce: list[tuple[Place, Room]] = []
    for candidate, spot in spots:
        path = candidate.own if spot.owned else candidate.shared
        obstacle = _obstacle(spot, last=candidate is candidates[-1])
        if obstacle is not None:
            avoided.append(Rejected(choice=path, reason=f"{candidate.name}: {obstacle}"))
            continue
        room = probe.room(candidate.folder)
        reason = f"{candidate.name} has {described(room)}"
        place = Place(path=path, reason=reason, rejected=tuple(avoided))
        if _is_enough(room):
            return place
        scarce.append((place, room))
        avoided.append(Rejected(choice=path, reason=f"{candidate.name} has only {described(room)}"))
    if not scarce:
        last = candidates[-1]
        reason = f"no directory is writable: {avoided[-1].reason}"
        return Place(path=last.own, reason=reason, rejected=tuple(avoided))
    best, room = max(scarce, key=lambda pair: pair[1].free_bytes)
    others = tuple(place for place in avoided if place.choice != best.path)
    reason = f"{best.reason}, the most of all directories found"
    return Place(path=best.path, reason=reason, rejected=others)


def described(room: Room) -> str:
    """As in "1,200 GB and 4,000,000 inodes left of the quota (lustre)"."""
    amount = f"{max(room.free_bytes, 0) / 1e9:,.0f} GB"
    if room.free_inodes is not None:
        amount += f" and {max(room.free_inodes, 0):,} inodes"
    left = "left of the quota" if room.limited_by == "quota" else "free"
    return f"{amount} {left} ({room.kind})"


def _candidates(
    environment: Mapping[str, str], home: str, is_of_a_job: Callable[[str], bool]
) -> tuple[list[_Candidate], list[Rejected]]:
    user = environment.get("USER") or environment.get("LOGNAME") or os.path.basename(home) or str(os.getuid())
    data = environment.get("XDG_DATA_HOME") or ""
    if not data.startswith("/"):  # relative paths must be ignored (XDG Base Directory Specification)
        data = os.path.join(home, ".local", "share")
    found: list[_Candidate] = []
    avoided: list[Rejected] = []
    taken = {os.path.normpath(home)}
    for name in VARIABLES:
        value = environment.get(name, "")
        if not value.startswith("/") or "\0" in value:
            continue
        folder = os.path.normpath(value)
        if folder in taken or folder == "/":
            continue
        taken.add(folder)
        if is_of_a_job(folder):
            avoided.append(Rejected(choice=folder, reason=f"${name} is removed when the job ends"))
            continue
        own = os.path.join(folder, "bareboat")
        # In a directory of several users, each has a store of their own.
        shared = own if user in folder.split("/") else os.path.join(folder, user, "bareboat")
        found.append(_Candidate(f"${name}", folder, own, shared))
    own = os.path.join(data, "bareboat")
    elsewhere = not data.startswith(home.rstrip("/") + "/")
    found.append(_Candidate("$XDG_DATA_HOME" if elsewhere else "the home directory", data, own, own))
    return found, avoided


def _obstacle(spot: Spot, *, last: bool) -> str | None:
    """Why a store cannot be there."""
    if "ro" in spot.options:
        return "it is mounted read-only"
    if not spot.folder and not last:  # missing directories below the home directory are created
        return "it does not exist"
    if not spot.writable:
        return "you cannot write to it"
    if spot.doubt and not last:  # the last one is refused, with a remedy, when it is used
        return f"others can change it: {spot.doubt}"
    if spot.kind in IN_MEMORY:
        return f"it is in memory ({spot.kind}) and is not permanent"
    if "noexec" in spot.options:
        return "it is mounted noexec, so programs of an image could not run"
    return None


def _is_enough(room: Room) -> bool:
    return room.free_bytes >= WANTED_BYTES and (room.free_inodes is None or room.free_inodes >= WANTED_INODES)


class Machine:
    """This machine, for `choose`."""

    def look(self, folder: str, stores: Sequence[str]) -> Spot:
        mount = mount_of(folder)
        nearest = existing(folder)
        try:
            owned = os.stat(nearest).st_uid == os.getuid()
        except OSError:
            owned = False
        return Spot(
            folder=nearest == folder and os.path.isdir(folder),
            writable=os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK),
            owned=owned,
            kind=mount.kind,
            options=mount.options,
            store=next((path for path in stores if _is_store(path)), None),
            doubt=str(ownership.doubt(stores[0 if owned else 1]) or ""),
        )

    def room(self, path: str) -> Room:
        return Room.at(path)


def _is_store(path: str) -> bool:
    """A store of this user. In a directory of several users, another user's may be there instead; a group's
    store is used only when it is named."""
    try:
        is_own = os.stat(os.path.join(path, "version")).st_uid == os.getuid()
        return is_own and not os.path.exists(os.path.join(path, "group"))
    except OSError:
        return False
