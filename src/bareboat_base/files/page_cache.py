"""How the files of a program lie in the page cache: which files processes have mapped to execute, and a new
layout for them.

A program runs faster if its pages are contiguous in memory. Pages keep their place for as long as they are in
the cache. Pages that leave it and are read again in order get large, contiguous pieces (folios); read at
random, single pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
#: Of a file that is read or checked at once.
_PIECE = 1 << 24


class _Mount(NamedTuple):
    """A line of proc_pid_mountinfo(5)."""

    device: str
    root: str
    point: str


def executed_files(pids: Iterable[int]) -> set[str]:
    """The files of which these processes execute code, by paths that this process can open. Files that it
    cannot open, such as those of a FUSE mount of the container, are left out."""
    found: set[str] = set()
    own = _mounts("self")
    for pid in pids:
        with contextlib.suppress(OSError):
            mounts = _mounts(str(pid))
            for path, inode in _executable_mappings(pid):
                found.update(_openable(path, inode, mounts, own))
    return found


def _executable_mappings(pid: int) -> set[tuple[str, int]]:
    found = set()
    with open(f"/proc/{pid}/maps", "rb") as stream:
        for line in stream:
            words = line.rstrip(b"\n").split(maxsplit=5)
            if len(words) == 6 and b"x" in words[1] and words[5].startswith(b"/"):
                found.add((os.fsdecode(words[5]), int(words[4])))
    return found


def _mounts(pid: str) -> list[_Mount]:
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        words = [line.split() for line in stream]
    return [_Mount(each[2], _unescaped(each[3]), _unescaped(each[4])) for each in words]


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _openable(path: str, inode: int, mounts: Sequence[_Mount], own: Sequence[_Mount]) -> Iterator[str]:
    """The path of a file of another mount namespace in this one, if it is there."""
    for candidate in (path, *_translated(path, mounts, own)):
        with contextlib.suppress(OSError):
            if os.stat(candidate).st_ino == inode:
                yield candidate
                return


def _translated(path: str, mounts: Sequence[_Mount], own: Sequence[_Mount]) -> Iterator[str]:
    below = [each for each in mounts if PurePosixPath(path).is_relative_to(each.point)]
    if not below:
        return
    # The last of several at one point covers the others.
    mount = max(reversed(below), key=lambda each: len(each.point))
    inside = PurePosixPath(mount.root) / PurePosixPath(path).relative_to(mount.point)
    for each in own:
        if each.device == mount.device and inside.is_relative_to(each.root):
            yield str(PurePosixPath(each.point) / inside.relative_to(each.root))


def identity(path: str) -> tuple[int, int] | None:
    """What tells files apart, whatever their names; None for a file that is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def evict(path: str) -> tuple[int, int]:
    """Drop a file's pages from the cache. Returns its size and the bytes that stayed: those that a process
    has mapped, and all of a file in memory (tmpfs). All of a file that neither belongs to this user nor may
    be written counts as stayed, because the kernel does not show its pages (mincore(2)).

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)  # dirty pages, as of a copy that was just written, are not dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(descriptor).st_size
        return size, sum(_resident(descriptor, at, min(_PIECE, size - at)) for at in range(0, size, _PIECE))
    finally:
        os.close(descriptor)


def _resident(descriptor: int, at: int, size: int) -> int:
    """The bytes of a piece of a file that are in the cache."""
    pages = -(-size // mmap.PAGESIZE)
    states = ctypes.create_string_buffer(pages)
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, offset=at) as mapped:
        view = ctypes.c_char.from_buffer(mapped)
        code = _libc.mincore(ctypes.addressof(view), size, states)
        del view  # or the mapping cannot be closed
    if code:
        return size
    return min(size, sum(state & 1 for state in states.raw) * mmap.PAGESIZE)


def read_in_order(path: str) -> None:
    """Read a file from its beginning to its end, so that its pages are in the cache. Raises OSError."""
    piece = bytearray(1 << 20)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while os.readv(descriptor, [piece]):
            pass
    finally:
        os.close(descriptor)
