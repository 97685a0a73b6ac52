"""Files of a report: which may be replaced.

A page names the runs that it reports. One whose runs are still in the store can be written again, and is
replaced; every other file requires `force`.
"""

from __future__ import annotations

import html
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from bareboat_base.errors import UsageError
from bareboat_base.files import outputs, untrusted
from bareboat_base.page import RUNS
from bareboat_images.store import Store

#: The part of a page that names its runs, and the longest page that is searched for it.
_NAMES = re.compile(rf'<meta name="{RUNS}" content="([^"<>]*)">')
_HEAD_BYTES = 1 << 16


def claim(text: str | Path, store: Store, *, force: bool, flag: str = "") -> Path:
    """The absolute path of a page or table that may be written. Raises UsageError where a file would be lost,
    and what `outputs.check` raises, with the flag."""
    path = outputs.check(text, flag=flag)
    if not can_be_replaced(path, store):
        outputs.check_free(path, force=force)
    return path


def can_be_replaced(path: Path, store: Store) -> bool:
    """Whether a file is empty, or a page of runs that are all in the store."""
    runs, there = reported(path), set(store.runs())
    # A point of a study or of a sweep has the name of the whole, and its number.
    known = [run for run in runs if {run, run.rpartition(".")[0]} & there]
    return bool(runs and known == list(runs)) or (path.is_file() and path.stat().st_size == 0)


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
    for file in (outputs.check(path / name, flag=flag) for name in names):
        if not can_be_replaced(file, store):
            other = f"use another directory: {flag} {shlex.quote(f'{path}-2')}"
            outputs.check_free(file, force=force, other=other)
    return path
