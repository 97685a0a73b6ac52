"""The transports between nodes that a run's ranks used, from the logs of their libraries in the run's
directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bareboat import transport_logs
from bareboat.model.fabric import FabricWatch, Transport
from bareboat.runs import directory
from bareboat_base.files import untrusted

#: NCCL writes a file for each rank; all agree except for numbers.
_MOST_FILES = 1024
#: Limits for one file and for all; libraries report at their start.
_MOST_BYTES = 1 << 20
_MOST_BYTES_IN_ALL = 16 << 20


def read(folder: Path) -> tuple[Transport, ...]:
    """Read the logs. `folder`: the run's."""
    # The MPI check is run by the script, or in the container by the image's own mpirun.
    check = _text([directory.control(folder) / "mpi_check.log"]) or _text(
        [folder / directory.RANKS / "mpi_check.log"]
    )
    files = directory.files_of(folder / directory.RANKS / transport_logs.NCCL_FOLDER, most=_MOST_FILES)
    # Separate, because an MPI and NCCL may both use libfabric.
    return (*transport_logs.read(check), *transport_logs.read(_text(files)))


def world_mark(folder: Path, ranks: int) -> str:
    """The warning about ranks that are not connected, from the job script and NCCL; "" without a sign of it.
    Raises DamagedRunError."""
    if ranks == 1:
        return ""
    files = directory.files_of(folder / directory.RANKS / transport_logs.NCCL_FOLDER, most=_MOST_FILES)
    sizes = [size for text in _texts(files) if (size := transport_logs.nccl_size(text)) is not None]
    if len(sizes) >= min(ranks, _MOST_FILES) and max(sizes) == 1:
        return f"NCCL reports world size 1 on each of {ranks} ranks: each trains its own model"
    return directory.world_mark(folder)


def mark(watch: FabricWatch | None, ways: Iterable[Transport]) -> str:
    """The warning about transports that do not use the nodes' fabric; "" when all do."""
    if watch is None or not watch.there:
        return ""
    ways = tuple(ways)
    fallen = [way for way in ways if way.fabric is False]
    if fallen:
        said = ", ".join(f"{way.by}: {way.way}" for way in fallen)
        return f"ranks fell back to TCP ({said}) although the nodes have {watch.there}"
    if watch.sockets:
        return f"ranks used {watch.sockets}, which is TCP, although the nodes have {watch.there}"
    if not ways and (watch.mpi_check or watch.nccl):
        return f"transport unknown: no library reported it; the nodes have {watch.there}"
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
