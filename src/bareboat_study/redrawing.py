"""The layouts of the arms' files in the page cache, drawn anew before each run.

How the pages of a program lie in memory changes its speed by about a percent, and they stay for as long as a
study takes: with other files in each arm, a difference of the layouts would look like one of the arms. So the
files that the processes of the warm-up executed leave the page cache before each measured run, and are read
again in order, arm by arm. Each arm then has a new layout of large, contiguous pieces, as near to the best as
the free memory allows. Which arm is read first is balanced over the runs.

    runs/ID/executed.json       the files of each arm
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bareboat.model import Layout, Study
from bareboat_base import codec
from bareboat_base.files import page_cache
from bareboat_images.store import Store
from bareboat_study import layouts, turns

_FILE = "executed.json"


def keep_files(store: Store, study: Study, files: Sequence[Iterable[str]]) -> None:
    """Write which files each arm executed in the warm-up."""
    store.write(store.run(study.id) / _FILE, codec.to_json([sorted(each) for each in files]))


def redraw(store: Store, study: Study, run: int) -> list[Layout] | None:
    """Draw new layouts of the files of all arms, before a run. Returns that of each arm; None for a warm-up,
    and where the study keeps its layouts."""
    path = store.run(study.id) / _FILE
    if run == 0 or not layouts.is_redrawing(study) or not path.exists():
        return None
    files = [_by_identity(each) for each in store.read(path, list[list[str]])]
    common = set.intersection(*map(set, files)) if files else set()
    stayed = {}
    for arm in files:
        for key, name in arm.items():
            if key not in stayed:
                stayed[key] = _evicted(name)
    seconds = _read(files, turns.layouts(study, run))
    return [
        Layout(
            files=len(arm),
            bytes=sum(stayed[key][0] for key in arm),
            own_bytes=sum(stayed[key][0] for key in arm if key not in common),
            stayed_bytes=sum(stayed[key][1] for key in arm if key not in common),
            took_s=took_s,
        )
        for arm, took_s in zip(files, seconds, strict=True)
    ]


def _by_identity(paths: Sequence[str]) -> dict[tuple[int, int], str]:
    found = {key: path for path in paths if (key := page_cache.identity(path)) is not None}
    return dict(sorted(found.items(), key=lambda each: each[1]))


def _evicted(path: str) -> tuple[int, int]:
    try:
        return page_cache.evict(path)
    except OSError:
        size = _size(path)
        return size, size


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _read(files: Sequence[Mapping[tuple[int, int], str]], order: Sequence[int]) -> list[float]:
    """Read each arm's files, and those of several arms once. Returns the seconds of each arm."""
    took = [0.0] * len(files)
    done: set[tuple[int, int]] = set()
    for arm in order:
        began = time.monotonic()
        for key, path in files[arm].items():
            if key not in done:
                with contextlib.suppress(OSError):
                    page_cache.read_in_order(path)
        done.update(files[arm])
        took[arm] = time.monotonic() - began
    return took
