"""A run's directory: where its files lie, and how they are read whatever they have become.

    control/    what the job script writes and reads again; no container sees it
    ranks/      what containers may write

Files of both are opened without following links and without blocking, and only a little of them is read. A
file of `control` that is no such file is an error of this one run (DamagedRunError); one of `ranks` that is
none has nothing to say.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bareboat.errors import StoreError
from bareboat.files import untrusted
from bareboat.printable import one_line

CONTROL, RANKS = "control", "ranks"

#: An exit code and the seconds since 1970, as the job script leaves them.
_ENDED = re.compile(r"(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])(?: (\d{1,11}))?\s*", re.ASCII)


class DamagedRunError(StoreError):
    """A file of a run's directory is not what it should be."""


def control(folder: Path) -> Path:
    """Where the job script of this run keeps what it reads again: before there was `control`, in `ranks`."""
    own = folder / CONTROL
    return own if os.path.lexists(own) or not os.path.isdir(folder / RANKS) else folder / RANKS


def text(path: Path, *, limit: int = untrusted.SMALL_BYTES) -> str | None:
    """What a small file says; None when there is none. Raises DamagedRunError."""
    try:
        return untrusted.read_text(path, limit=limit)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: OSError) -> DamagedRunError:
    reason = error.strerror or "cannot be read"
    if error.errno == errno.ENXIO:
        reason = "is not a regular file"
    run = path.parent.parent if path.parent.name in (CONTROL, RANKS) else path.parent
    return DamagedRunError(
        f"{path.relative_to(run)} of the run cannot be read: {reason}",
        context=str(path),
        remedy=f"look at it, and remove it: ls -l {path}",
    )


def ended(path: Path) -> tuple[int, int] | None:
    """The exit code and its time, in seconds since 1970, of a file that holds them; None before its line is
    there. Raises DamagedRunError for anything else."""
    said = text(path, limit=4096)
    if not said or not said.strip("\0\n "):
        return None
    found = _ENDED.fullmatch(said)
    if found is None:
        raise damaged(path, OSError(0, "it holds no exit code"))
    return None if found[2] is None else (int(found[1]), int(found[2]))


def world_mark(folder: Path) -> str:
    """In what groups the ranks of a run may be, which should be one world; "" where nothing speaks for it."""
    said = text(control(folder) / "world" / "apart", limit=4096)
    return one_line(said.strip()) if said else ""


def files_of(folder: Path, *, most: int) -> Iterator[Path]:
    """The files of a directory that containers may write to, at most so many, in the order of their names;
    none of a link to a directory."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    names: list[str] = []
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if len(names) == most:
                    break
                names.append(entry.name)
    except OSError:
        pass
    finally:
        os.close(descriptor)
    for name in sorted(names):
        yield folder / name
