"""A run's directory: where its files are, and how to read them safely.

    control/    files that the job script writes and reads; no container sees them
    ranks/      files that containers may write

Files are opened without following links and without blocking, and only a limited size is read. An invalid
file in `control` is an error of this one run (DamagedRunError); one in `ranks` is ignored.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from bareboat_base.errors import StoreError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import counted, one_line

CONTROL, RANKS = "control", "ranks"
#: Of a run on this machine: where its ranks' meters write.
METER = "meter"

#: An exit code and the seconds since 1970, as the job script writes them.
_ENDED = expression(r"(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])(?: (\d{1,11}))?\s*", re.ASCII)


class DamagedRunError(StoreError):
    """A file of a run's directory is invalid."""


def control(folder: Path) -> Path:
    """The directory of the job script's own files."""
    return folder / CONTROL


def text(path: Path, *, limit: int = untrusted.SMALL_BYTES) -> str | None:
    """The text of a small file; None when it does not exist. Raises DamagedRunError."""
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
        remedy=f"inspect and remove it: ls -l {shlex.quote(str(path))}",
    )


def ended(path: Path) -> tuple[int, int] | None:
    """The exit code and its time, in seconds since 1970 and 0 where it is unknown, from a file; None before
    its line exists. Raises DamagedRunError for anything else."""
    said = text(path, limit=4096)
    if not said or not said.strip("\0\n "):
        return None
    found = _ENDED.fullmatch(said)
    if found is None:
        raise damaged(path, OSError(0, "it does not hold an exit code"))
    return None if found[2] is None else (int(found[1]), int(found[2]))


def exit_of(folder: Path) -> tuple[int, int] | None:
    """The exit code of a run and its time: from its job script, or from Bareboat in its place. None before
    the end. Raises DamagedRunError."""
    return ended(control(folder) / "exit_code") or ended(folder / "exit_code")


def world_mark(folder: Path) -> str:
    """In what groups the ranks of a run may be, which should be one world; "" without a sign of it."""
    said = text(control(folder) / "world" / "apart", limit=4096)
    return one_line(said.strip()) if said else ""


def discarded(folder: Path) -> str:
    """How many files vanished with the run's containers, as its job script counted them (kept.sh); "" for
    none. Raises DamagedRunError."""
    files = (each for each in files_of(control(folder), most=1024) if each.name.startswith("discarded."))
    number = sum((text(each, limit=16 << 20) or "").count("\n") for each in files)
    return f"{counted(number, 'file')} discarded with the container" if number else ""


def files_of(folder: Path, *, most: int) -> Iterator[Path]:
    """The files of a directory that containers may write to, sorted by name, at most `most`; none of a link
    to a directory."""
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
