"""Choose the store's directory when none is configured, and measure its room: space, inodes and quota.

An existing store wins, so most calls query no file system. Otherwise the site's large file systems come
before the home directory, which has few inodes on most clusters. The choice and its reason are reported in
one sentence.

Each quota tool has a parser of its own; the parsers and the choice are pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from bareboat_base.alternatives import Rejected
from bareboat_base.files import ownership
from bareboat_base.files.kinds import IN_MEMORY
from bareboat_base.files.mounts import Mount, existing, mount_of

#: Variables with a user's directory on a large file system, best first.
VARIABLES = (
    "SCRATCH", "PSCRATCH", "CSCRATCH", "GSCRATCH", "MYSCRATCH", "SCRATCHDIR", "SCRATCH_DIR",
    "WORK", "WORKDIR", "WORK_DIR", "PROJECT", "PROJECT_DIR", "PROJECTDIR",
)  # fmt: skip

#: The space for a PyTorch image and runs with it.
WANTED_BYTES = 10 * 10**9
WANTED_INODES = 200_000

#: A quota server that does not answer must not delay a command for long.
_PATIENCE_S = 5.0


class Limit(Struct, frozen=True, kw_only=True):
    """Bytes and inodes left of a quota; None without a limit, negative when exceeded."""

    free_bytes: int | None = None
    free_inodes: int | None = None


class Room(Struct, frozen=True, kw_only=True):
    """The space left for a user in a directory. `free_inodes` is None where inodes are not counted.

    `kind` is the file system's type; `limited_by` is "quota" where a quota leaves less than is free.
    """

    free_bytes: int
    free_inodes: int | None
    kind: str
    limited_by: str


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
    """The store's place. The room is None for an existing store, which is not measured."""

    path: str
    reason: str
    rejected: tuple[Rejected, ...] = ()
    free_bytes: int | None = None
    free_inodes: int | None = None

    @property
    def sentence(self) -> str:
        """The message for the user, in one line."""
        return f"the store is {self.path}: {self.reason}"


class Probe(Protocol):
    """The facts about the machine that the choice needs."""

    def look(self, folder: str, stores: Sequence[str]) -> Spot:
        """The facts about a directory; `stores` are the candidate paths of a store in it."""
        ...

    def room(self, path: str) -> Room: ...


# -- the choice --------------------------------------------------------------------------------------


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
        place = Place(
            path=path,
            reason=f"{candidate.name} has {described(room)}",
            rejected=tuple(avoided),
            free_bytes=room.free_bytes,
            free_inodes=room.free_inodes,
        )
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
    return Place(
        path=best.path,
        reason=f"{best.reason}, the most of all directories found",
        rejected=others,
        free_bytes=room.free_bytes,
        free_inodes=room.free_inodes,
    )


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


# -- the machine -------------------------------------------------------------------------------------


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
        return room(path)


def room(path: str) -> Room:
    """The space left for this user at a path, which need not exist yet.

    The minimum of free space and quota. A quota tool that fails or is not installed sets no limit. Raises
    OSError for a file system that does not answer.
    """
    place = existing(path)
    state, mount = os.statvfs(place), mount_of(place)
    free_bytes = state.f_bavail * state.f_frsize
    free_inodes = state.f_favail if state.f_files else None
    limit = quota(mount) or Limit()
    least_bytes = min(free_bytes, free_bytes if limit.free_bytes is None else limit.free_bytes)
    left_inodes = [each for each in (free_inodes, limit.free_inodes) if each is not None]
    least_inodes = min(left_inodes, default=None)
    limited = least_bytes < free_bytes or (
        least_inodes is not None and (free_inodes is None or least_inodes < free_inodes)
    )
    return Room(
        free_bytes=max(least_bytes, 0),
        free_inodes=None if least_inodes is None else max(least_inodes, 0),
        kind=mount.kind,
        limited_by="quota" if limited else "file system",
    )


def quota(mount: Mount) -> Limit | None:
    """The quota of the user, from this machine's tool."""
    question = _QUESTIONS.get(mount.kind)
    if question is None:
        return None
    from bareboat_base import execute  # here, because most commands find a store and query nothing
    from bareboat_base.errors import ToolError

    tool, arguments, parse = question
    program = execute.which(tool)
    if program is None:
        return None
    try:
        answer = execute.run([program, *arguments, mount.point], timeout_s=_PATIENCE_S)
    except ToolError:
        return None
    return parse(answer.stdout, mount)  # `quota` exits with 1 when a limit is exceeded


def _is_store(path: str) -> bool:
    """A store of this user. In a directory of several users, another user's may be there instead; a group's
    store is used only when it is named."""
    try:
        is_own = os.stat(os.path.join(path, "version")).st_uid == os.getuid()
        return is_own and not os.path.exists(os.path.join(path, "group"))
    except OSError:
        return False


def parse_lfs_quota(output: str, mount: Mount) -> Limit | None:
    """`lfs quota -q -u UID POINT`: the file system; used, quota, limit, grace of blocks (KiB), then of files.

    A long name has a line of its own; `*` marks what is exceeded, brackets mark unknown values.
    Source: https://doc.lustre.org/lustre_manual.xhtml#configuringquotas
    """
    words = output.split()
    for at, word in enumerate(words):
        if word.rstrip("/") == mount.point.rstrip("/") and len(words) >= at + 8:
            return _limit(words[at + 1 : at + 4], words[at + 5 : at + 8], unit=1024)
    return None


def parse_quota(output: str, _mount: Mount) -> Limit | None:
    """`quota -u -w -p -f POINT`: the device; used, quota, limit, grace of blocks (KiB), then of files.

    With -p the grace columns are always present, as numbers. Source: quota(1).
    """
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 9 and re.fullmatch(r"\d+\*?", words[-8]):
            return _limit(words[-8:-5], words[-4:-1], unit=1024)
    return None


def _limit(blocks: Sequence[str], files: Sequence[str], *, unit: int) -> Limit | None:
    """The limit from used, soft and hard. A soft limit counts, since it is enforced some days later."""
    block_left, file_left = _left(blocks), _left(files)
    if block_left is None and file_left is None:
        return None
    return Limit(free_bytes=None if block_left is None else block_left * unit, free_inodes=file_left)


def _left(words: Sequence[str]) -> int | None:
    numbers = [re.fullmatch(r"\[?([0-9]{1,18})\]?\*?", word) for word in words]
    if numbers[0] is None:
        return None
    limits = [int(number[1]) for number in numbers[1:] if number is not None and int(number[1])]
    return min(limits) - int(numbers[0][1]) if limits else None


_Parser = Callable[[str, Mount], Limit | None]
_QUOTA: tuple[str, list[str], _Parser] = ("quota", ["-u", "-w", "-p", "-f"], parse_quota)
#: Kind of file system -> the tool, its arguments before the mount point, and the parser of its output.
_QUESTIONS: dict[str, tuple[str, list[str], _Parser]] = {
    "lustre": ("lfs", ["quota", "-q", "-u", str(os.getuid())], parse_lfs_quota),
    "nfs": _QUOTA,
    "ext4": _QUOTA,
    "ext3": _QUOTA,
    "xfs": _QUOTA,
}
