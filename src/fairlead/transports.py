"""The way between nodes that a run's ranks took: read from what their libraries left in the run's folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from fairlead.fabric import told
from fairlead.fabric.facts import FabricWatch, Transport

#: NCCL leaves a file for each rank, and they all say the same but for its numbers.
_MOST_FILES = 1024
_MOST_BYTES = 64 * 2**20


def read(ranks: Path) -> tuple[Transport, ...]:
    """`ranks`: the folder that the job script writes to."""
    proof = _text([ranks / "proof.log"])
    try:
        files = sorted((ranks / told.NCCL_FOLDER).iterdir())
    except OSError:
        files = []
    # Apart, because an MPI and NCCL may both use libfabric.
    return (*told.read(proof), *told.read(_text(files[:_MOST_FILES])))


def mark(watch: FabricWatch | None, ways: Iterable[Transport]) -> str:
    """What is wrong with these ways, on nodes with a fabric; "" when nothing is."""
    if watch is None or not watch.there:
        return ""
    ways = tuple(ways)
    fallen = [way for way in ways if way.fabric is False]
    if fallen:
        said = ", ".join(f"{way.by} by {way.way}" for way in fallen)
        return f"the ranks spoke by sockets ({said}) although the nodes have {watch.there}"
    if watch.sockets:
        return f"the ranks spoke by {watch.sockets}, which is TCP although the nodes have {watch.there}"
    if not ways and (watch.proof or watch.nccl):
        return f"no library said which way the ranks took; the nodes have {watch.there}"
    return ""


def _text(files: Iterable[Path]) -> str:
    return "\n".join(itertools.islice(_texts(files), _MOST_FILES))


def _texts(files: Iterable[Path]) -> Iterator[str]:
    for path in files:
        try:
            with path.open("rb") as stream:
                yield stream.read(_MOST_BYTES).decode(errors="replace")
        except OSError:
            continue
