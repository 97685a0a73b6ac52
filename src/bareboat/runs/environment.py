"""The values of `environment_from`, for a job of a scheduler: in a file beside its script, which it reads.

Schedulers change values that they export (PBS: backslashes and quotes), and some show them to other users.
The job removes the file as soon as no start can follow; where it cannot, as after `scancel` or the loss of
its node, whoever finds the run over does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bareboat.runs import directory
from bareboat_base.errors import StoreError
from bareboat_images.store import Store

FILE = "environment"


def write(store: Store, folder: Path, names: Sequence[str]) -> None:
    """Write the values of this process into the directory of the script, which only its user can enter."""
    if names:
        text = b"".join(
            b"%s\0%s\0" % (os.fsencode(name), os.environb.get(os.fsencode(name), b"")) for name in names
        )
        store.write(folder / FILE, text)


def remove(store: Store, folder: Path) -> None:
    """Remove the file; a user who may not has no values there."""
    path = folder / FILE
    if os.path.lexists(path):
        with contextlib.suppress(OSError, StoreError), store.guarded():
            path.unlink(missing_ok=True)


def left_behind(store: Store) -> Iterator[list[str]]:
    """For each run the names of its jobs that have such a file: the run itself, or points of a study."""
    for name in store.runs():
        folder = store.run(name)
        jobs: dict[str, tuple[Path, ...]] = {name: (folder, folder / directory.CONTROL)}
        for point in folder.glob("points/*/submission.json"):  # of a study
            jobs[f"{name}.{point.parent.name}"] = (point.parent / directory.CONTROL,)
        left = [job for job, places in jobs.items() if any(os.path.lexists(each / FILE) for each in places)]
        if left:
            yield left
