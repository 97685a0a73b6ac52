"""Turn errors of the operating system into one clear error with the path and a remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from bareboat_base.errors import BareboatError, StoreError, UsageError
from bareboat_base.files import mounts

#: Errors of a disk, independent of the path.
OF_DISKS = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "has no space left in your quota",
    errno.EROFS: "is read-only",
    errno.EIO: "has an input/output error",
    errno.ESTALE: "has a stale file handle: the server removed the file or restarted",
}
#: Errors of a path -> the message and the command that shows the cause.
_OF_PATHS = {
    errno.ENOENT: ("does not exist", "ls -ld {parent}"),
    errno.EACCES: ("cannot be used: permission denied", "ls -ld {parent} {path}"),
    errno.EPERM: ("cannot be used: operation not permitted", "ls -ld {parent} {path}"),
    errno.ENOTDIR: ("cannot be used: a part of the path is a file, not a directory", "ls -ld {parent}"),
    errno.EISDIR: ("is a directory, not a file", "ls -ld {path}"),
    errno.EEXIST: ("already exists", "ls -ld {path}"),
    errno.ELOOP: ("cannot be used: its symbolic links form a loop", "namei -l {path}"),
    errno.ENAMETOOLONG: ("cannot be used: the path or a name in it is too long", "use a shorter path"),
    errno.ENOTEMPTY: ("is a directory that is not empty", "ls -la {path}"),
    errno.ETXTBSY: ("is a running program", "wait until it ends"),
    errno.EXDEV: ("is on another file system", "use one file system for both"),
}
#: Limits of this process -> the message and the remedy.
_OF_LIMITS = {
    errno.ENOMEM: ("not enough memory", "ulimit -v   # shows the limit; free -h shows what is free"),
    errno.EAGAIN: ("the limit on processes and threads is reached", "ulimit -u   # shows the limit"),
    errno.EMFILE: ("too many files are open in one process", "ulimit -n 1024   # raises the limit"),
    errno.ENFILE: (
        "too many files are open on this machine",
        "try again later, or contact the administrator",
    ),
    errno.EFBIG: (
        "a file is larger than the limit on file sizes",
        "ulimit -f unlimited   # removes the limit",
    ),
}


def explain(error: BaseException) -> BareboatError | None:
    """Return the error for the user; None for other exceptions."""
    if isinstance(error, MemoryError) or _lacks_memory(error):
        message, remedy = _OF_LIMITS[errno.ENOMEM]
        return BareboatError(message, context=_unless_empty(error), remedy=remedy)
    if not isinstance(error, OSError):
        return None
    code = error.errno or 0
    if code in _OF_LIMITS:
        message, remedy = _OF_LIMITS[code]
        return BareboatError(message, context=str(error), remedy=remedy)
    path = path_of(error)
    if path is None or not path.startswith("/"):
        here = working_directory()
        if here is None:
            return no_working_directory()
        path = None if path is None else str(here / path)
    if code in OF_DISKS:
        return _of_disk(error, code, path)
    if path is None:
        return BareboatError(f"a system call failed: {error}", remedy=_AGAIN)
    if code == errno.EACCES and (closed := mounts.closed_directory(path)):
        return UsageError(
            f"{path} cannot be used: you may not enter the directory {closed}",
            remedy=f"chmod u+x {shlex.quote(closed)}",
        )
    what, remedy = _OF_PATHS.get(code, (f"cannot be used: {error.strerror or error}", "ls -ld {path}"))
    shown = {"path": shlex.quote(path), "parent": shlex.quote(os.path.dirname(path) or "/")}
    context = "" if code in _OF_PATHS else str(error)
    return UsageError(f"{path} {what}", context=context, remedy=remedy.format(**shown))


_AGAIN = "repeat with --verbose to see the last command"


def no_working_directory() -> UsageError:
    """The error for a working directory that was removed, or that a parent hides from this user."""
    return UsageError(
        "the current working directory no longer exists, or you cannot access it",
        remedy="cd to a directory that exists, and repeat",
    )


def working_directory() -> Path | None:
    """Return the working directory; None where it is gone, for callers that do not need it."""
    try:
        return Path.cwd()
    except OSError:
        return None


@contextlib.contextmanager
def at(path: str | Path) -> Iterator[None]:
    """Inside, errors that do not name an absolute path name this one.

    write(2) and close(2) fail without a path, so the user would not know which disk is full.
    """
    try:
        yield
    except OSError as error:
        name = path_of(error)
        if name is None or not name.startswith("/"):
            error.filename = os.fspath(path)
            del error.filename2  # None would be shown as a second path
        raise


def free_space(path: str | Path) -> str:
    """The free space and inodes of the path's file system, in one line; empty where unknown."""
    try:
        state = os.statvfs(mounts.existing(os.fspath(path)))
    except OSError:
        return ""
    return f"{state.f_bavail * state.f_frsize / 1e6:,.0f} MB and {state.f_favail:,} inodes free"


def _of_disk(error: OSError, code: int, path: str | None) -> StoreError:
    where = "a file system"
    df = "df -h ."
    if path is not None:
        mount = mounts.mount_of(path)
        where = f"the file system of {path}"
        if mount.point:
            where += f" ({mount.kind}, mounted at {mount.point})"
        df = f"df -h {shlex.quote(mounts.existing(path))}"
    free = free_space(path) if path is not None and code == errno.ENOSPC else ""
    remedy = {
        errno.ENOSPC: f"{df}; free some space there, or use another directory",
        errno.EDQUOT: "quota -s   # shows your quota (Lustre: lfs quota); then free some space",
        errno.EROFS: "use a writable directory",
    }.get(code, f"{df}; if it happens again, contact the administrator")
    return StoreError(
        f"{where} {OF_DISKS[code]}", context=f"{error} ({free})" if free else str(error), remedy=remedy
    )


def path_of(error: OSError) -> str | None:
    """The path of the error; of two paths, as with rename(2), the new one."""
    for name in (error.filename2, error.filename):
        if isinstance(name, (str, bytes)) and name:
            return os.fsdecode(name)
    return None


def _lacks_memory(error: BaseException) -> bool:
    """Whether a library or thread could not be loaded or started for lack of memory."""
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    if isinstance(error, ImportError):
        text = str(error).lower()
        return any(
            each in text
            for each in ("failed to map segment", "cannot allocate memory", "cannot create shared")
        )
    return False


def _unless_empty(error: BaseException) -> str:
    return str(error) and f"{type(error).__name__}: {error}"
