"""The series of a run: what its ranks' meters wrote step by step, and its memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bareboat.model import Record
from bareboat.runs import directory
from bareboat_study import meterlog
from bareboat_study.meterlog import Process

_MOST_RANKS, _MOST_NAMES = 256, 100
STEP_TIME, MEMORY = "step_s", "memory_bytes"


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a step. `at_s`: seconds since the start of the rank, or of the run; None where unknown."""

    step: int
    value: float
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """`rank`: None for the whole run."""

    name: str
    rank: int | None
    points: tuple[Point, ...]


def read(folder: Path, world_size: int, record: Record | None) -> list[Series]:
    """All series of a run that is no study: the steps and the results of each rank, and the memory. `folder`:
    the run's."""
    found: list[Series] = []
    for rank in range(min(world_size, _MOST_RANKS)):
        process = meterlog.read_so_far(folder / directory.METER, rank)
        if process is not None:
            found += _of_rank(rank, process)
    if record is not None and record.memory:
        samples = enumerate(record.memory)
        points = tuple(Point(number, float(sample.bytes), sample.at_s) for number, sample in samples)
        found.append(Series(MEMORY, None, points))
    return found


def _of_rank(rank: int, process: Process) -> Iterator[Series]:
    ends_s = [(end - process.loaded_ns) / 1e9 for _, end in process.step_times()]
    took = [(end - begin) / 1e9 for begin, end in process.step_times()]
    if took:
        steps = zip(itertools.count(), took, ends_s, strict=False)
        yield Series(STEP_TIME, rank, tuple(Point(*step) for step in steps if step[1] >= 0))
    results: dict[str, list[Point]] = {}
    for each in process.reports:
        if each.name in results or (len(results) < _MOST_NAMES and each.name.isprintable()):
            done = min(each.step, len(ends_s))
            at_s = ends_s[done - 1] if done else None
            results.setdefault(each.name, []).append(Point(each.step, float(each.value), at_s))
    yield from (Series(name, rank, tuple(points)) for name, points in sorted(results.items()))
