"""The series of a run: what its ranks' meters wrote step by step, and its memory.

Containers write these files, so what the meter did not write is ignored, and so is the rest of a damaged
file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bareboat.model import Record
from bareboat.runs import directory
from bareboat.runs.stragglers import read_steps
from bareboat_base.files import untrusted
from bareboat_study import meterlog

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_RANKS = 256
_MOST_BYTES = 256 << 20
_MOST_POINTS = 1_000_000
_MOST_NAMES, _MOST_NAME = 100, 100
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


@dataclass(slots=True)
class RankLog:
    """What one rank's meter wrote: seconds of each step and the values of each result, in their order.
    `import_s` and `setup_s`: before its first step. `is_complete`: it closed its meter."""

    rank: int
    import_s: float = 0.0
    setup_s: float = 0.0
    samples_per_step: float = 1.0
    steps: list[Point] = field(default_factory=list)
    results: dict[str, list[Point]] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    is_complete: bool = False

    @property
    def steps_s(self) -> float:
        return math.fsum(point.value for point in self.steps)


def rank_logs(folder: Path, world_size: int) -> list[RankLog]:
    """The meters' logs of a run's ranks; where there are none, the steps that the ranks reported. `folder`:
    the run's."""
    ranks = range(min(world_size, _MOST_RANKS))
    found = [log for rank in ranks if (log := _rank_log(folder / directory.METER, rank)) is not None]
    if found:
        return found
    return [log for rank in ranks if (log := _progress(folder, rank)) is not None]


def series_of(record: Record | None, logs: Iterable[RankLog]) -> list[Series]:
    """All series of a run that is no study."""
    found = []
    for log in logs:
        if log.steps:
            found.append(Series(STEP_TIME, log.rank, tuple(log.steps)))
        found += [Series(name, log.rank, tuple(points)) for name, points in sorted(log.results.items())]
    return [*found, *memory_of(record)]


def memory_of(record: Record | None) -> Iterator[Series]:
    if record is not None and record.memory:
        points = tuple(
            Point(number, float(sample.bytes), sample.at_s) for number, sample in enumerate(record.memory)
        )
        yield Series(MEMORY, None, points)


def of_record(record: Record) -> list[Series]:
    """The series of an arm in a run of a study: throughput of each window, curves of its output, memory."""
    from bareboat_study.windows import step_s

    per_step = record.samples_per_step or 1.0
    points = tuple(
        Point(window.block, per_step / step_s(window), window.began_s) for window in record.windows
    )
    throughput = [Series("throughput", None, points)] if points else []
    declared = [
        Series(name, None, tuple(Point(step, float(y)) for step, (_, y) in enumerate(curve)))
        for name, curve in (record.series or {}).items()
    ]
    return [*throughput, *declared, *memory_of(record)]


def _rank_log(folder: Path, rank: int) -> RankLog | None:
    path = folder / f"rank-{rank:05d}.jsonl"
    try:
        lines = untrusted.read_bytes(path, limit=_MOST_BYTES).splitlines()
    except OSError:
        return None
    log: RankLog | None = None
    loaded_ns = imported_ns = 0
    for line in lines:
        try:
            said = meterlog.parse_line(line)
        except (msgspec.DecodeError, RecursionError, ValueError):
            break
        if isinstance(said, meterlog.Begun) and log is None:
            loaded_ns, imported_ns = said.loaded_ns, said.imported_ns
            log = RankLog(rank, import_s=max(0, imported_ns - loaded_ns) / 1e9)
            samples = float(said.samples_per_step)
            if math.isfinite(samples) and samples > 0:
                log.samples_per_step = samples
        elif log is not None:
            _add(log, said, loaded_ns, imported_ns)
    return log


def _add(log: RankLog, said: object, loaded_ns: int, imported_ns: int) -> None:
    match said:
        case meterlog.Started(at_ns=at_ns):
            log.setup_s = max(0, at_ns - imported_ns) / 1e9
        case meterlog.Steps(opened_ns=opened_ns, ends_ns=ends_ns):
            for begin, end in itertools.pairwise([opened_ns, *ends_ns]):
                if len(log.steps) < _MOST_POINTS and end >= begin:
                    log.steps.append(Point(len(log.steps), (end - begin) / 1e9, (end - loaded_ns) / 1e9))
        case meterlog.Result(name=name, value=value, step=step):
            is_one = 0 < len(name) <= _MOST_NAME and name.isprintable()
            if is_one and (name in log.results or len(log.results) < _MOST_NAMES):
                points = log.results.setdefault(name, [])
                if len(points) < _MOST_POINTS:
                    at_s = log.steps[-1].at_s if log.steps else None
                    points.append(Point(step, float(value), at_s))
        case meterlog.Ended(peak_rss_bytes=peak):
            log.peak_rss_bytes, log.is_complete = peak, True


def _progress(folder: Path, rank: int) -> RankLog | None:
    """The steps that a rank without a log reported, of its newest start."""
    progress = folder / directory.RANKS / "progress"
    if progress.is_symlink():
        return None
    try:
        text = untrusted.read_bytes(progress / str(rank), limit=_MOST_BYTES).decode(errors="replace")
    except OSError:
        return None
    steps = read_steps(text)
    if not steps:
        return None
    log = RankLog(rank)
    log.steps = [Point(step, seconds) for step, seconds in sorted(steps.items())[:_MOST_POINTS]]
    return log
