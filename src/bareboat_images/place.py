"""Measure the room in a directory: space, inodes and quota.

Each quota tool has a parser of its own; the parsers are pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from bareboat_base.files.mounts import Mount, existing, mount_of

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

    @classmethod
    def at(cls, path: str) -> Room:
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
        return cls(
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
