"""The way between nodes that a run's ranks took: read from what their libraries left in the run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bareboat import run_folder
from bareboat.fabric import told
from bareboat.fabric.facts import FabricWatch, Transport
from bareboat.files import untrusted

#: NCCL leaves a file for each rank, and they all say the same but for its numbers.
_MOST_FILES = 1024
#: Of one file, and of all. What libraries say of themselves they say when they begin.
_MOST_BYTES = 1 << 20
_MOST_BYTES_IN_ALL = 16 << 20


def read(folder: Path) -> tuple[Transport, ...]:
    """`folder`: the run's."""
    # The script runs the proof, or the image's own mpirun does, in the container.
    proof = _text([run_folder.control(folder) / "proof.log"]) or _text(
        [folder / run_folder.RANKS / "proof.log"]
    )
    files = run_folder.files_of(folder / run_folder.RANKS / told.NCCL_FOLDER, most=_MOST_FILES)
    # Apart, because an MPI and NCCL may both use libfabric.
    return (*told.read(proof), *told.read(_text(files)))


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
    return "\n".join(_texts(files))


def _texts(files: Iterable[Path]) -> Iterator[str]:
    left = _MOST_BYTES_IN_ALL
    for path in files:
        try:
            data = untrusted.read_head(path, limit=min(_MOST_BYTES, left))
        except OSError:
            continue
        left -= len(data)
        yield data.decode(errors="replace")
        if left <= 0:
            return
