"""The layouts of the arms' files in the page cache, drawn again before each run.

How the pages of a program lie in memory changes its speed by about a percent, and they stay for as long as a
study takes: with other files in each arm, a difference of the layouts would look like one of the arms. So the
files that the processes of the warm-up executed leave the page cache before each measured run, and are read
again in order, arm by arm. Each arm then has a new layout of large, contiguous pieces, as near to the best as
the free memory allows. Which arm is read first is balanced over the runs.

    runs/ID/executed.json       the files of each arm
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bareboat.model import Layout, Study
from bareboat_base import codec
from bareboat_images.store import Store
from bareboat_study import layouts, page_cache, turns

_FILE = "executed.json"
#: The share of the bytes that an arm uses whose files are read again.
_MOST_USED = 0.95

#: Device and inode: the identity of a file, whatever its name.
_Identity = tuple[int, int]


def keep_files(store: Store, study: Study, files: Sequence[Mapping[str, int]]) -> None:
    """Write which files each arm executed in the warm-up, and how many of their bytes it used."""
    store.write(store.run(study.id) / _FILE, codec.to_json(files))


class _File(NamedTuple):
    """A file of an arm. `is_chosen`: it is read again."""

    path: str
    size: int
    used: int
    is_chosen: bool


def redraw(
    store: Store, study: Study, run: int, *, say: Callable[[str], None] = lambda _: None
) -> list[Layout] | None:
    """Draw new layouts of the files of all arms, before a run; of none where those of one are not known.
    Returns that of each arm; None for a warm-up, and where the study keeps its layouts."""
    path = store.run(study.id) / _FILE
    if run == 0 or layouts.why_kept(study.job.prove, study.job.scheduler) or not path.exists():
        return None
    files = [_files(each) for each in store.read(path, list[dict[str, int]])]
    if not all(any(file.is_chosen for file in arm.values()) for arm in files):
        return [Layout(files=0, bytes=0, own_bytes=0, stayed_bytes=0, took_s=0.0) for _ in files]
    say("reading the arms' files into the page cache")
    common = set.intersection(*map(set, files)) if files else set()
    stayed: dict[_Identity, float] = {}
    for arm in files:
        for key, file in arm.items():
            if file.is_chosen and key not in stayed:
                stayed[key] = _share_that_stays(file.path)
    seconds = _read(files, turns.layouts(study, run))
    return [
        Layout(
            files=sum(file.is_chosen for file in arm.values()),
            bytes=sum(file.size for file in arm.values() if file.is_chosen),
            own_bytes=sum(file.used for key, file in arm.items() if key not in common),
            stayed_bytes=sum(
                round(file.used * stayed.get(key, 1.0)) for key, file in arm.items() if key not in common
            ),
            took_s=took_s,
        )
        for arm, took_s in zip(files, seconds, strict=True)
    ]


def _files(used: Mapping[str, int]) -> dict[_Identity, _File]:
    """The files of an arm that are still there. Those are chosen of which it uses the largest share, until
    they have nearly all bytes that it uses: a library of which it uses a page is left as it is."""
    found = []
    for path in used:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            key = status.st_dev, status.st_ino
            found.append((key, path, status.st_size, min(used[path], status.st_size)))
    found.sort(key=lambda each: (-each[3] / max(each[2], 1), each[1]))
    files, covered, limit = {}, 0, _MOST_USED * sum(used.values())
    for key, path, size, own in found:
        is_chosen = covered < limit
        files[key] = _File(path, size, own, is_chosen)
        covered += own
    return files


def _share_that_stays(path: str) -> float:
    try:
        return page_cache.evict(path)
    except OSError:
        return 1.0


def _read(files: Sequence[Mapping[_Identity, _File]], order: Sequence[int]) -> list[float]:
    """Read each arm's files, and those of several arms once. Returns the seconds of each arm."""
    took = [0.0] * len(files)
    done: set[_Identity] = set()
    for arm in order:
        began = time.monotonic()
        for key, file in files[arm].items():
            if file.is_chosen and key not in done:
                done.add(key)
                with contextlib.suppress(OSError):
                    page_cache.read_in_order(file.path)
        took[arm] = time.monotonic() - began
    return took
