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
from collections.abc import Iterable

from bareboat_base.files import mounts

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
#: Of a file that is read or checked at once.
_PIECE = 1 << 24
#: Of a file whose pages the kernel does not show.
_SAMPLE = 32


def executed_files(pids: Iterable[int]) -> dict[str, int]:
    """The files of which these processes execute code, by paths that this process can open, and how many of
    their bytes a process used since `forget_use`. Files that this process cannot open, such as those of a
    FUSE mount of the container, are left out."""
    found: dict[str, int] = {}
    own = list(mounts.lines(mounts.table_of("self")))
    for pid in pids:
        with contextlib.suppress(OSError):
            theirs = list(mounts.lines(mounts.table_of(str(pid))))
            for (path, inode), used in _used_bytes(pid).items():
                openable = _openable(mounts.names_among(theirs, path, own), inode)
                if openable is not None:
                    found[openable] = max(used, found.get(openable, 0))
    return found


def forget_use(pids: Iterable[int]) -> None:
    """Make the kernel forget which pages of files these processes have used: the start of a program uses many
    that the rest does not."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as stream:
            stream.write("3")


def _used_bytes(pid: int) -> dict[tuple[str, int], int]:
    """The path and the inode of each file that a process executes -> bytes that it used, from
    proc_pid_smaps(5)."""
    found: dict[tuple[str, int], int] = {}
    executed = set()
    key = None
    with open(f"/proc/{pid}/smaps", "rb") as stream:
        for line in stream:
            words = line.rstrip(b"\n").split(maxsplit=5)
            if not words[0].endswith(b":"):
                key = (os.fsdecode(words[5]), int(words[4])) if len(words) == 6 else None
                if key is not None and b"x" in words[1] and key[0].startswith("/"):
                    executed.add(key)
            elif words[0] == b"Referenced:" and key is not None:
                found[key] = found.get(key, 0) + int(words[1]) * 1024
    return {key: found.get(key, 0) for key in executed}


def _openable(names: Iterable[str], inode: int) -> str | None:
    """The name by which this process can open a file."""
    for name in names:
        with contextlib.suppress(OSError):
            if os.stat(name).st_ino == inode:
                return name
    return None


def evict(path: str) -> float:
    """Drop a file's pages from the cache. Returns the share that stayed: pages that a process has mapped, and
    all of a file in memory (tmpfs), or whose file system does not show it.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)  # dirty pages, as of a copy that was just written, are not dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        status = os.fstat(descriptor)
        if status.st_size == 0:
            return 0.0
        # mincore(2) shows the pages of a file only to its owner, and to those who may write it.
        if status.st_uid == os.geteuid() or os.access(path, os.W_OK):
            sizes = [(at, min(_PIECE, status.st_size - at)) for at in range(0, status.st_size, _PIECE)]
            return sum(_resident(descriptor, *each) for each in sizes) / status.st_size
        share = _sampled(descriptor, status.st_size)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return share
    finally:
        os.close(descriptor)


def _sampled(descriptor: int, size: int) -> float:
    """The share of a file in the cache, from a sample of its pages that are read without waiting."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    pages = -(-size // mmap.PAGESIZE)
    number = min(pages, _SAMPLE)
    hits = 0
    for place in range(number):
        at = place * pages // number * mmap.PAGESIZE
        try:
            os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT)
        except BlockingIOError:
            # The kernel began to read the page, which it does not drop before it has it.
            os.pread(descriptor, 1, at)
            continue
        except OSError:  # not supported: it may be there
            pass
        hits += 1
    return hits / number


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
    """Read a file from its beginning to its end, so that its pages are in the cache. Raises OSError.

    The whole file, because the kernel makes the pieces larger the longer it is read in order: with 1 MiB read
    in every 3, all pages of a library of 438 MB are single ones, and all but 0.5 % of the whole are in
    aligned groups of 64 KiB.
    """
    piece = bytearray(1 << 20)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while os.readv(descriptor, [piece]):
            pass
    finally:
        os.close(descriptor)
