"""Checksums of data: of a file, or of a directory with everything below it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line
from bareboat_study.reproduction.document import Datum

_CHUNK_BYTES = 1 << 20
_MOST_FILES = 5_000_000

#: What is read, the bytes done, and those in all (0: unknown).
Progress = Callable[[str, int, int], None]


def checksum(path: str, *, began_epoch_s: int = 0, progress: Progress = lambda *_: None) -> Datum:
    """The checksum of a file or directory. A link to a file counts as the file, and a link to a directory as
    its text. `began_epoch_s`: when the run began; 0: unknown.

    Raises UsageError where something is missing, unreadable, or neither file nor directory."""
    place = os.path.abspath(path)
    shown = f"reading {one_line(place, limit=60)}"
    if not os.path.isdir(place):
        digest, size, changed = _file(place, lambda done, total: progress(shown, done, total))
        return Datum(
            path=place, sha256=digest, size_bytes=size, files=1, is_later=_is_later(changed, began_epoch_s)
        )
    whole = hashlib.sha256()
    files = total = 0
    newest = 0.0
    for name, inner in _below(place):
        if isinstance(inner, str):
            whole.update(b"link\0" + os.fsencode(name) + b"\0" + os.fsencode(inner) + b"\n")
            continue
        progress(shown, total, 0)
        digest, size, changed = _file(inner)
        whole.update(b"file\0" + os.fsencode(name) + b"\0" + f"{size} {digest}\n".encode())
        files, total, newest = files + 1, total + size, max(newest, changed)
        if files > _MOST_FILES:
            raise UsageError(f"{place} has more than {_MOST_FILES:,} files", remedy="name parts of it")
    return Datum(
        path=place,
        sha256=whole.hexdigest(),
        size_bytes=total,
        files=files,
        is_folder=True,
        is_later=_is_later(newest, began_epoch_s),
    )


def check(path: str) -> None:
    """Raise UsageError for the data of a --data that cannot be read, before anything else is."""
    if os.path.isdir(path):
        return
    try:
        os.close(untrusted.open_regular(path, follow=True))
    except OSError as error:
        raise untrusted.unreadable(path, error).of("--data") from None


def _is_later(changed: float, began_epoch_s: int) -> bool:
    return bool(began_epoch_s) and changed >= began_epoch_s + 1


def _below(folder: str) -> Iterator[tuple[str, Path | str]]:
    """The relative paths of all files and links to directories, sorted; for links their text."""

    def refuse(error: OSError) -> None:
        raise untrusted.unreadable(error.filename or folder, error)

    for here, folders, files in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in sorted((*folders, *files)):
            path = os.path.join(here, name)
            if os.path.isdir(path):
                if os.path.islink(path):
                    yield os.path.relpath(path, folder), os.readlink(path)
            else:
                yield os.path.relpath(path, folder), Path(path)


def _file(
    path: str | Path, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[str, int, float]:
    """The digest, the size, and when it last changed, in seconds since 1970."""
    try:
        descriptor = untrusted.open_regular(path, follow=True)
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    found = hashlib.sha256()
    done = 0
    with open(descriptor, "rb", buffering=0) as stream:
        state = os.fstat(descriptor)
        while chunk := stream.read(_CHUNK_BYTES):
            found.update(chunk)
            done += len(chunk)
            progress(done, state.st_size)
    return found.hexdigest(), done, state.st_mtime
