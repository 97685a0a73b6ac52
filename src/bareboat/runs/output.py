"""What a run printed: the files, and their text."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from bareboat.model import Submission
from bareboat.runs import directory, submission
from bareboat_base.errors import StoreError, UsageError
from bareboat_base.files import untrusted
from bareboat_images.store import Store

#: More is read with `bareboat logs`, which copies.
_MOST_BYTES = 256 << 20


def of_rank(store: Store, made: Submission, rank: int) -> list[Path]:
    """The paths of a rank's output and errors, which may not exist. Raises UsageError, StoreError."""
    if not 0 <= rank < made.world_size:
        raise UsageError(
            f"{made.run_id} has no rank {rank}: "
            + (f"its ranks are 0 to {made.world_size - 1}" if made.world_size > 1 else "its only rank is 0"),
            remedy=f"--rank {made.world_size - 1}",
        )
    # Written by the script, or by the ranks inside their container.
    folders = [submission.control_folder(store, made.run_id), store.run(made.run_id) / directory.RANKS]
    names = [f"{rank}.out", f"{rank}.err"]
    by_ranks = not any(os.path.lexists(folders[0] / "logs" / name) for name in names)
    logs = folders[by_ranks] / "logs"
    if os.path.islink(logs):
        raise StoreError(
            f"{logs} is a symbolic link", remedy=f"ls -l {shlex.quote(str(logs))}   # then remove it"
        )
    return [logs / name for name in names]


def read(store: Store, run_id: str, *, rank: int | None = None) -> str:
    """The text of a run's output, or of one rank's. Raises StoreError where nothing was kept."""
    made = submission.read(store, run_id)
    paths: Sequence[Path] = [submission.output_log(store, run_id)]
    if rank is not None:
        paths = of_rank(store, made, rank)
    found = [path for path in paths if os.path.lexists(path)]
    if not found:
        raise StoreError(f"no output of {run_id} was kept", remedy=f"bareboat status {run_id}")
    try:
        texts = [untrusted.read_bytes(path, limit=_MOST_BYTES) for path in found]
    except OSError as error:
        raise directory.damaged(paths[0], error) from None
    return "".join(text.decode(errors="replace") for text in texts)
