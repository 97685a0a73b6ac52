"""Files of a report: which may be replaced, checked before the work and again before they are written.

A page names the runs that it reports, and a directory has a list of the files that were written to it with
their digests. Bareboat replaces only what it can write again: its own unchanged files about runs that are
still in the store. Everything else requires `force`.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bareboat_base import __version__, codec
from bareboat_base.errors import UsageError
from bareboat_base.files import failures, outputs, untrusted
from bareboat_base.page import RUNS
from bareboat_images.store import Store

#: The list of a directory's files.
LIST = "bareboat-report.json"
#: The part of a page that names its runs, and the longest page that is searched for it.
_NAMES = re.compile(rf'<meta name="{RUNS}" content="([^"<>]*)">')
_HEAD_BYTES = 1 << 16
_MOST_BYTES = 1 << 30


class _List(Struct, frozen=True, kw_only=True):
    """`files`: name -> SHA-256."""

    bareboat_version: str
    runs: tuple[str, ...]
    files: dict[str, str]


def claim(text: str | Path, store: Store, *, force: bool, flag: str = "") -> Path:
    """The absolute path of a page or table that may be written. Raises UsageError where a file would be lost,
    and what `outputs.check` raises, with the flag."""
    path = outputs.check(text, flag=flag)
    if force or not _has_content(path):
        return path
    runs = reported(path)
    if not runs:
        raise _taken(path, "already exists and is not a report of Bareboat")
    _check_runs(path, runs, store)
    return path


def reported(path: Path) -> tuple[str, ...]:
    """The runs that a page of Bareboat reports; () for any other file, or none."""
    try:
        head = untrusted.read_head(path.resolve(), limit=_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return ()
    found = _NAMES.search(head)
    return () if found is None else tuple(html.unescape(found[1]).split())


def claim_folder(text: str, names: Iterable[str], store: Store, *, force: bool, flag: str = "") -> Path:
    """The absolute path of a directory to which files of these names may be written; it may not exist yet.
    Raises UsageError where a file would be lost, and what `outputs.check` raises, with the flag."""
    path = Path(os.path.abspath(text)) if text else Path()
    if not text or not os.path.lexists(path):
        return outputs.check(text, flag=flag, is_folder=True)
    if not path.is_dir():
        raise UsageError(
            f"{flag}: {path} is not a directory", remedy=f"{flag} {shlex.quote(f'{path}-files')}"
        )
    outputs.check(path / LIST, flag=flag)
    there = [name for name in names if _has_content(path / name)]
    for name in there:
        outputs.check(path / name, flag=flag)
    if force or not there:
        return path
    known = _list(path)
    for name in there:
        if known is None or name not in known.files:
            raise _taken(path / name, "already exists and is not a report of Bareboat", folder=path)
        if _digest_of(path / name) != known.files[name]:
            raise _taken(path / name, "was changed after Bareboat wrote it", folder=path)
    assert known is not None
    _check_runs(path, known.runs, store, folder=path)
    return path


def write_folder(path: Path, files: Mapping[str, bytes], runs: Sequence[str]) -> None:
    """Write the files, and add them to the directory's list. A file is written completely or not at all."""
    with failures.at(path):
        path.mkdir(exist_ok=True)
    known = _list(path)
    kept = known.files if known is not None else {}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    for name, data in files.items():
        outputs.write(path / name, data)
    others = [run for run in known.runs if run not in runs] if known is not None else []
    still = {name for name in kept if name not in files and os.path.lexists(path / name)}
    listed = _List(
        bareboat_version=__version__,
        runs=tuple(dict.fromkeys([*(others if still else ()), *runs])),
        files={name: kept[name] for name in sorted(still)} | digests,
    )
    outputs.write(path / LIST, (codec.to_pretty_json(listed) + "\n").encode())


def _list(folder: Path) -> _List | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return codec.decode(untrusted.read_bytes(folder / LIST), _List)
    return None


def _has_content(path: Path) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return os.path.islink(path)
    except OSError:
        return True


def _digest_of(path: Path) -> str:
    try:
        return hashlib.sha256(untrusted.read_bytes(path, limit=_MOST_BYTES)).hexdigest()
    except OSError:
        return ""


def _check_runs(path: Path, runs: Iterable[str], store: Store, *, folder: Path | None = None) -> None:
    there = set(store.runs())
    # A point of a study or of a sweep has the name of the whole, and its number.
    gone = [run for run in runs if not {run, run.rpartition(".")[0]} & there]
    if gone:
        raise _taken(path, f"is the report of {gone[0]}, which is not in this store any more", folder=folder)


def _taken(path: Path, reason: str, *, folder: Path | None = None) -> UsageError:
    other = shlex.quote(str(_free(folder or path)))
    return UsageError(
        f"{path} {reason}",
        context="store: reports of runs that it has can be written again, and are replaced"
        if "store" in reason
        else "",
        remedy=f"--force replaces it; or use another name: {'' if folder else '-o '}{other}",
    )


def _free(path: Path) -> Path:
    """A similar name that is not taken."""
    for number in range(2, 1000):
        other = path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not os.path.lexists(other):
            return other
    return path.with_name(f"{path.stem}-new{path.suffix}")
