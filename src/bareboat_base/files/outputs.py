"""Check the user's output files before the work begins, and write them completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bareboat_base.errors import BareboatError, StoreError, UsageError
from bareboat_base.files import failures, mounts
from bareboat_base.files.trees import remove_tree
from bareboat_base.paths import lies_in
from bareboat_base.printable import one_line, printable, quoted


def check(text: str | Path, *, flag: str = "", is_folder: bool = False, other: str = "") -> Path:
    """Return the absolute path of an output. Raises UsageError when it cannot be written. `flag`: its flag.
    `is_folder`: a directory that must not exist yet. `other`: the command that gives another name."""
    try:
        return _checked(text, flag, is_folder=is_folder, other=other)
    except BareboatError as error:
        raise error.of(flag) from None


def _checked(text: str | Path, flag: str, *, is_folder: bool, other: str) -> Path:
    if not str(text):
        raise UsageError("the path of the output is empty", remedy=_another(flag, "./result"))
    if failures.working_directory() is None and not os.path.isabs(text):
        raise failures.no_working_directory()
    path = Path(os.path.abspath(text))
    if printable(path.name) != path.name:  # no message could give a command with it
        raise UsageError(
            f"the file name {quoted(path.name)} has a control character or is not UTF-8",
            remedy=_another(flag, "./result"),
        )
    _check_place(path, flag, is_folder=is_folder, other=other)
    _check_access(path)
    return path


def _another(flag: str, path: str) -> str:
    """The remedy that names another output."""
    return f"{flag} {shlex.quote(path)}" if flag else f"use another path, for example {shlex.quote(path)}"


def _check_place(path: Path, flag: str, *, is_folder: bool, other: str) -> None:
    """Raise UsageError for an output whose name or directory is taken by something else."""
    parent = path.parent
    shown = shlex.quote(str(parent))
    try:
        if not parent.is_dir():
            if os.path.lexists(parent):
                raise UsageError(
                    f"{parent} is a file, not a directory, and cannot hold {path.name}",
                    remedy=_another(flag, f"./{path.name}"),
                )
            raise UsageError(f"the directory {parent} does not exist", remedy=f"mkdir -p {shown}")
        with contextlib.suppress(FileNotFoundError):
            os.lstat(path)
        if is_folder:
            if os.path.lexists(path):
                raise UsageError(f"{path} already exists", remedy=other or _another(flag, f"{path}-2"))
        elif path.is_dir():
            raise UsageError(
                f"{path} is a directory, not a file",
                remedy=_another(flag, f"{path}/result"),
            )
        elif path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file", remedy=_another(flag, "./result"))
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(
                f"the path {one_line(str(path), limit=80)} is too long",
                remedy=f"{_another(flag, './result')}   # a name has at most 255 characters",
            ) from None
        _refuse_if_closed(path)
        raise UsageError(f"{path} cannot be examined: {error.strerror}", remedy=f"ls -ld {shown}") from None


def _refuse_if_closed(path: Path) -> None:
    if closed := mounts.closed_directory(path):
        raise UsageError(
            f"{path} cannot be written: you may not enter the directory {closed}",
            remedy=f"chmod u+rwx {shlex.quote(closed)}",
        ) from None


def _check_access(path: Path) -> None:
    """Raise UsageError for a directory that this user cannot write to."""
    parent = path.parent
    shown = shlex.quote(str(parent))
    if not os.access(parent, os.W_OK | os.X_OK):
        _refuse_if_closed(path)
        mount = mounts.mount_of(str(parent))
        reason = (
            f"the file system at {mount.point} is read-only" if "ro" in mount.options else "no permission"
        )
        raise UsageError(
            f"{path} cannot be written: {reason}", remedy=f"choose another directory, or: ls -ld {shown}"
        )


def check_free(
    path: Path, *, force: bool | None = None, other: str = "use another name", inputs: Iterable[Path] = ()
) -> None:
    """Raise UsageError when something is at this path that `force` does not replace; None: the command has no
    --force. It replaces none of the `inputs`. `other`: how to name another output."""
    if any(path.exists() and each.exists() and path.samefile(each) for each in inputs):
        raise UsageError(f"{path} is what this command reads", remedy=other)
    if os.path.lexists(path) and not force:
        instead = f"remove it: rm {shlex.quote(str(path))}" if force is None else "replace it: --force"
        raise UsageError(f"{path} already exists", remedy=f"{other}; or {instead}")


def check_new(text: str | None, *, flag: str) -> Path | None:
    """Return the absolute path of an output at which nothing is; None for none. Raises as `check` and
    `check_free` do. `flag`: that names it."""
    if text is None:
        return None
    path = check(text, flag=flag)
    check_free(path, other=f"{flag} OTHER")
    return path


def check_room(path: Path, needed_bytes: int) -> None:
    """Raise StoreError when the output does not fit on its file system."""
    state = os.statvfs(path.parent)
    free_bytes = state.f_bavail * state.f_frsize
    if needed_bytes > free_bytes:
        raise StoreError(
            f"{path} needs {needed_bytes / 1e6:,.0f} MB, but its file system has "
            f"{free_bytes / 1e6:,.0f} MB free",
            remedy=f"df -h {shlex.quote(str(path.parent))}; free some space there, or use another directory",
        )


def write(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file completely, or keep the old one. `mode`: its permissions, less the umask. Raises
    StoreError when there is no space."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with beside(path) as part, open(os.open(part, flags, mode), "wb") as stream:
        stream.write(data)


def write_new(path: Path, data: bytes, *, force: bool | None = None, other: str = "use another name") -> None:
    """Write a file completely or not at all; raises UsageError as `check_free` does, also when the file
    came to be since then."""
    with beside(path) as part:
        part.write_bytes(data)
        check_free(path, force=force, other=other)


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A temporary path on the same file system, renamed to `path` at the end, or removed on an error.

    Raises BareboatError when the output's directory refuses it; OSError for other failures.
    """
    import tempfile  # here and below: most processes do without them

    folder = descriptor = None
    try:
        with failures.at(path):
            _remove_left(path)
            folder = Path(tempfile.mkdtemp(prefix=f".{path.name[:100]}-", dir=path.parent))
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield folder / "part"
            os.replace(folder / "part", path)
    except OSError as error:
        place = failures.path_of(error)
        found = failures.explain(OSError(error.errno, error.strerror, str(path)))
        if found is None or place is None or not lies_in(place, str(path.parent)):
            raise
        message = f"{found.message}; no partial data was kept"
        raise type(found)(message, context=found.context, remedy=found.remedy) from error
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):
                remove_tree(folder)
        if descriptor is not None:
            os.close(descriptor)


def _remove_left(path: Path) -> None:
    """Remove what killed writers of this output left: old directories that no process has locked."""
    import glob

    for left in path.parent.glob(f".{glob.escape(path.name[:100])}-????????"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A writer that just begins has no lock yet.
                if time.time() - os.fstat(descriptor).st_mtime > 60:
                    remove_tree(left)
            finally:
                os.close(descriptor)
