"""Turns what the operating system refuses into one clear error: the path, what happened, and the remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from bareboat.errors import BareboatError, StoreError, UsageError
from bareboat.files import mounts

#: Errors of a disk, whatever the path on it.
_OF_DISKS = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "has no room left in your quota",
    errno.EROFS: "is read-only",
    errno.EIO: "has an input/output error",
    errno.ESTALE: "has a stale file handle: the server removed the file or restarted",
}
#: Errors of a path -> what it is said to be, and the command that shows why.
_OF_PATHS = {
    errno.ENOENT: ("does not exist", "ls -ld {parent}"),
    errno.EACCES: ("cannot be used: this user lacks the permission", "ls -ld {parent} {path}"),
    errno.EPERM: ("cannot be used: the system does not permit it", "ls -ld {parent} {path}"),
    errno.ENOTDIR: ("cannot be used: a part of the path is a file, not a directory", "ls -ld {parent}"),
    errno.EISDIR: ("is a directory, and a file is needed", "ls -ld {path}"),
    errno.EEXIST: ("exists already", "ls -ld {path}"),
    errno.ELOOP: ("cannot be used: its symbolic links form a loop", "namei -l {path}"),
    errno.ENAMETOOLONG: ("cannot be used: the path or a name in it is too long", "use a shorter path"),
    errno.ENOTEMPTY: ("is a directory that is not empty", "ls -la {path}"),
    errno.ETXTBSY: ("is a program that is running", "wait until it ends"),
    errno.EXDEV: ("is on another file system", "use one file system for both"),
}
#: Limits of this process -> the message and the remedy.
_OF_LIMITS = {
    errno.ENOMEM: ("there is not enough memory", "ulimit -v   # shows the limit; free -h shows what is free"),
    errno.EAGAIN: ("the limit on processes and threads is reached", "ulimit -u   # shows the limit"),
    errno.EMFILE: ("too many files are open in one process", "ulimit -n 1024   # raises the limit"),
    errno.ENFILE: ("too many files are open on this machine", "try again later, or ask the administrator"),
    errno.EFBIG: ("a file is larger than the limit on file sizes", "ulimit -f unlimited   # lifts the limit"),
}


def explain(error: BaseException) -> BareboatError | None:
    """Return the error for the user; None for what is no refusal of the operating system."""
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
    if code in _OF_DISKS:
        return _of_disk(error, code, path)
    if path is None:
        return BareboatError(f"the system refused an operation: {error}", remedy=_AGAIN)
    what, remedy = _OF_PATHS.get(code, (f"cannot be used: {error.strerror or error}", "ls -ld {path}"))
    shown = {"path": shlex.quote(path), "parent": shlex.quote(os.path.dirname(path) or "/")}
    return UsageError(f"{path} {what}", context=str(error), remedy=remedy.format(**shown))


_AGAIN = "repeat with --verbose to see the last command"


def no_working_directory() -> UsageError:
    """The error for a working directory that was removed, or that a parent hides from this user."""
    return UsageError(
        "the current working directory does not exist any more, or this user cannot reach it",
        remedy="cd to a directory that exists, and repeat",
    )


def working_directory() -> Path | None:
    """Return the working directory; None where it is gone, for what can do without."""
    try:
        return Path.cwd()
    except OSError:
        return None


@contextlib.contextmanager
def at(path: str | Path) -> Iterator[None]:
    """Inside, an error of a file that does not name an absolute path names this one.

    write(2) and close(2) fail without a path, so that nobody would know which disk is full.
    """
    try:
        yield
    except OSError as error:
        name = path_of(error)
        if name is None or not name.startswith("/"):
            error.filename, error.filename2 = os.fspath(path), None
        raise


def free_space(path: str | Path) -> str:
    """What `df` says of the file system that holds the path, in one line; empty where it says nothing."""
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
        errno.ENOSPC: f"{df}; free some space there, or choose another place",
        errno.EDQUOT: "quota -s   # shows your quota (Lustre: lfs quota); then free some space",
        errno.EROFS: "choose a place that can be written",
    }.get(code, f"{df}; if it happens again, contact the administrator")
    return StoreError(
        f"{where} {_OF_DISKS[code]}", context=f"{error} ({free})" if free else str(error), remedy=remedy
    )


def path_of(error: OSError) -> str | None:
    """The path that the error is about: of two, as rename(2) has them, the one that was to be made."""
    for name in (error.filename2, error.filename):
        if isinstance(name, (str, bytes)) and name:
            return os.fsdecode(name)
    return None


def _lacks_memory(error: BaseException) -> bool:
    """Whether a library or a thread could not be loaded or started for want of memory."""
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
