"""What the ranks of a run have reported of their steps: RANKS-FOLDER/progress/RANK."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairlead.stragglers import Straggler, find_straggler, read_steps

#: Of each file the end is enough for the newest steps.
_TAIL_BYTES = 1 << 14


def look_for_straggler(folder: Path, nodes: Sequence[str]) -> Straggler | None:
    """The slowest rank, if it is slow for sure. `folder`: of the run's ranks; `nodes`: each rank's."""
    reports = {}
    for rank in range(len(nodes)):
        try:
            with open(folder / "progress" / str(rank), "rb") as stream:
                stream.seek(max(stream.seek(0, 2) - _TAIL_BYTES, 0))
                data = stream.read()
        except OSError:
            return None
        # The first line may have lost its beginning, and the last one its end.
        whole = data[data.find(b"\n") + 1 :] if len(data) == _TAIL_BYTES else data
        reports[rank] = read_steps(whole[: whole.rfind(b"\n") + 1].decode(errors="replace"))
    return find_straggler(reports, nodes)
