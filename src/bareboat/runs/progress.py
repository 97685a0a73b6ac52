"""Read the steps that a run's ranks reported: ranks/progress/RANK of its directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bareboat.model import Straggler
from bareboat.runs import directory
from bareboat.runs.stragglers import find_straggler, read_steps
from bareboat_base.files import untrusted

#: The end of each file is enough for the newest steps.
_TAIL_BYTES = 1 << 14


def look_for_straggler(folder: Path, nodes: Sequence[str]) -> Straggler | None:
    """The slowest rank, if it is significantly slow. `folder`: the run's; `nodes`: each rank's."""
    reports = {}
    progress = folder / directory.RANKS / "progress"
    if os.path.islink(progress):
        return None
    for rank in range(len(nodes)):
        try:
            data = untrusted.read_tail(progress / str(rank), limit=_TAIL_BYTES)
        except OSError:
            return None
        # The first and the last line may be incomplete.
        whole = data[data.find(b"\n") + 1 :] if len(data) == _TAIL_BYTES else data
        reports[rank] = read_steps(whole[: whole.rfind(b"\n") + 1].decode(errors="replace"))
    return find_straggler(reports, nodes)
