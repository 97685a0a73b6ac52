"""Open files that a job, a container or another user may have written.

A name may refer to anything: a link to a file of the user's, a FIFO that blocks, a device, a sparse file of a
terabyte. So no link is followed in the last component, nothing blocks, only regular files are read, and never
more than a limit.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import BinaryIO

from bareboat_base.errors import UsageError
from bareboat_base.files import mounts

#: Enough for every small file of a run directory: exit codes, starts, host names of ten thousand nodes.
SMALL_BYTES = 1 << 20

_KINDS = (
    (stat.S_ISDIR, "is a directory"),
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
    (stat.S_ISSOCK, "is a socket"),
)
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UntrustedFileError(OSError):
    """The file is a link, not a regular file, or too large."""


def open_regular(
    path: str | bytes | Path, *, follow: bool = False, dir_fd: int | None = None, flags: int = os.O_RDONLY
) -> int:
    """Return a descriptor of a regular file, opened for reading. `follow`: the user gave the name, which may
    be a link; `flags`: O_RDWR and O_CREAT for a file that is written too.

    Raises FileNotFoundError when there is none, UntrustedFileError when it is a link, a FIFO, a device, a
    socket or a directory, and OSError as open(2) does.
    """
    try:
        descriptor = os.open(
            path, flags | (_SAFELY & ~os.O_NOFOLLOW if follow else _SAFELY), 0o600, dir_fd=dir_fd
        )
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise UntrustedFileError(
                error.errno, "is a socket, not a regular file", os.fsdecode(path)
            ) from None
        if not follow and error.errno == errno.ELOOP and _is_link(path, dir_fd):
            raise UntrustedFileError(error.errno, "is a symbolic link", os.fsdecode(path)) from None
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = next((name for test, name in _KINDS if test(mode)), "is of an unknown type")
            raise UntrustedFileError(0, f"{kind}, not a regular file", os.fsdecode(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_link(path: str | bytes | Path, dir_fd: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path, dir_fd=dir_fd).st_mode)
    except OSError:
        return False


def stream(path: str | bytes | Path, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file as a binary stream. Raises what `open_regular` raises."""
    return open(open_regular(path), "rb", buffering)


def read_bytes(path: str | Path, *, limit: int = SMALL_BYTES, follow: bool = False) -> bytes:
    """Read a whole regular file of at most `limit` bytes. `follow` as in `open_regular`.

    Raises what `open_regular` raises, and UntrustedFileError for a larger file: its size is checked before it
    is read, so that a sparse file costs no memory.
    """
    descriptor = open_regular(path, follow=follow)
    try:
        data = b""
        if os.fstat(descriptor).st_size <= limit:
            with open(descriptor, "rb", closefd=False) as stream:
                data = stream.read(limit + 1)
            if len(data) <= limit:
                return data
        raise UntrustedFileError(0, f"is larger than {limit:,} bytes", str(path))
    finally:
        os.close(descriptor)


def read_text(path: str | Path, *, limit: int = SMALL_BYTES) -> str:
    """Read a file as `read_bytes` does; bytes that are not UTF-8 become replacement characters."""
    return read_bytes(path, limit=limit).decode("utf-8", "replace")


def read_head(path: str | Path, *, limit: int) -> bytes:
    """Read the first `limit` bytes at most of a regular file of any size."""
    descriptor = open_regular(path)
    try:
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(limit)
    finally:
        os.close(descriptor)


def read_tail(path: str | Path, *, limit: int) -> bytes:
    """Read the last `limit` bytes at most of a regular file of any size."""
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, limit, max(size - limit, 0))
    finally:
        os.close(descriptor)


def last_lines(path: str | Path, *, most: int = 20) -> str:
    """The last lines of an output for an error's context; "" where it cannot be read."""
    try:
        text = read_tail(path, limit=1 << 16).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-most:])


def unreadable(
    path: str | Path, error: OSError, *, flag: str = "", key: str = "", kind: str = "regular file"
) -> UsageError:
    """The error for a user's file that cannot be read. `flag`, `key`: that names the file; `kind`: what it
    must be."""
    return _unreadable(path, error, flag or key, kind).of(flag).but(key=key)


def _unreadable(path: str | Path, error: OSError, name: str, kind: str) -> UsageError:
    from bareboat_base import ranges  # here, because every start imports this module

    quoted = shlex.quote(str(path))
    another = ranges.setting(name, '"FILE"') if name else ""
    match error:
        case FileNotFoundError() | NotADirectoryError():
            folder = mounts.existing(os.path.dirname(os.path.abspath(path)))
            return UsageError(f"file {path} not found", remedy=another or f"ls {shlex.quote(folder)}")
        case UntrustedFileError():
            return UsageError(f"{path} {error.strerror}", remedy=another or f"name a {kind}")
        case PermissionError():
            if closed := mounts.closed_directory(path):
                return UsageError(
                    f"{path} cannot be read: you may not enter the directory {closed}",
                    remedy=f"chmod u+x {shlex.quote(closed)}",
                )
            return UsageError(f"{path} cannot be read: permission denied", remedy=f"chmod u+r {quoted}")
        case _ if error.errno == errno.ENAMETOOLONG:
            return UsageError(
                f"{path} cannot be read: the name is too long",
                remedy=another or "use a shorter name",
            )
        case _:
            return UsageError(f"{path} cannot be read: {error.strerror}", remedy=f"ls -lL {quoted}")
