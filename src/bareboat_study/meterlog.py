"""Read the logs of ranks' meters."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from bareboat.model.record import NotFinite
from bareboat_base import codec
from bareboat_base.errors import RunError
from bareboat_base.files import untrusted
from bareboat_base.printable import quoted

#: A log of ten million steps.
_MOST_BYTES = 256 << 20


@dataclass(slots=True)
class Process:
    """One Python process of a rank that created a meter. Times are nanoseconds of CLOCK_MONOTONIC."""

    rank: int
    world_size: int
    samples_per_step: float
    loaded_ns: int
    imported_ns: int
    start_ns: int
    #: the ranks work without each other
    independent: bool = False
    #: when the gate let this rank continue after its last step
    released_ns: int = 0
    ended_ns: int = 0
    peak_rss_bytes: int = 0
    #: (opened, ends of the steps that followed), one entry per line
    stretches: list[tuple[int, list[int]]] = field(default_factory=list)
    #: what it reported, in order
    reports: list[Result] = field(default_factory=list)
    #: the number of ranks with which it trained; 0: not known
    trained_with: int = 0

    @property
    def steps(self) -> int:
        return sum(len(ends) for _, ends in self.stretches)

    def step_times(self) -> list[tuple[int, int]]:
        """Begin and end of every step; a wait at a gate is in none."""
        found = []
        for opened_ns, ends_ns in self.stretches:
            begin = opened_ns
            for end in ends_ns:
                found.append((begin, end))
                begin = end
        return found

    def step_seconds(self, first: int, last: int) -> tuple[float, ...]:
        """Seconds of the steps first..last-1, counted from 0."""
        return tuple((end - begin) / 1e9 for begin, end in self.step_times()[first:last])

    @property
    def phase_ends_ns(self) -> tuple[int, int, int, int, int]:
        """The ends of process start, import, set-up, first step and last step."""
        ends = [end for _, stretch in self.stretches for end in stretch]
        first, last = (ends[0], ends[-1]) if ends else (self.start_ns, self.start_ns)
        return self.loaded_ns, self.imported_ns, self.start_ns, first, last

    @property
    def results(self) -> dict[str, float]:
        """The newest value of each result."""
        return {each.name: float(each.value) for each in self.reports}

    @property
    def diverged(self) -> dict[str, int]:
        """Results that are not finite -> the first step with this; 0: it is not known, as of a value that was
        reported only at the end."""
        found: dict[str, int] = {}
        for each in self.reports:
            if math.isfinite(float(each.value)):
                found.pop(each.name, None)
            else:
                found.setdefault(each.name, each.step)
        return {name: step if step < self.steps else 0 for name, step in found.items()}


#: A line of a log, which containers write.
_Ns = Annotated[int, Meta(ge=0, lt=1 << 62)]


class Begun(Struct, tag_field="kind", tag="process"):
    rank: int
    world_size: int
    samples_per_step: float | NotFinite
    loaded_ns: _Ns
    imported_ns: _Ns
    independent: bool = False


class World(Struct, tag_field="kind", tag="world"):
    size: int


class Started(Struct, tag_field="kind", tag="start"):
    at_ns: _Ns


class Steps(Struct, tag_field="kind", tag="steps"):
    opened_ns: _Ns
    ends_ns: list[_Ns]


class Result(Struct, tag_field="kind", tag="result"):
    name: str
    value: float | NotFinite
    step: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0


class Ended(Struct, tag_field="kind", tag="end"):
    opened_ns: _Ns
    at_ns: _Ns
    peak_rss_bytes: Annotated[int, Meta(ge=0, lt=1 << 62)]


_Line: Any = Begun | World | Started | Steps | Result | Ended


def _parsed(line: bytes) -> Any:
    """One line of a log. Raises msgspec.DecodeError, ValueError, RecursionError."""
    try:
        return codec.decode(line, _Line)
    except msgspec.DecodeError:
        if b"NaN" in line or b"Infinity" in line:  # as written by Python's json
            return codec.convert(json.loads(line), _Line)
        raise


def read_rank(folder: Path, rank: int) -> Process:
    """The log of one rank. Raises RunError when it is missing or incomplete, or when the rank trained
    alone."""
    path = _path(folder, rank)
    process: Process | None = None
    try:
        for line in untrusted.read_bytes(path, limit=_MOST_BYTES).splitlines():
            process = _with_line(process, line)
    except FileNotFoundError:
        raise RunError(f"rank {rank} wrote no meter log {path}") from None
    except (msgspec.DecodeError, RecursionError, OSError, ValueError) as error:
        raise RunError(f"the meter log {path} cannot be read: {error}") from None
    if process is not None and not (math.isfinite(process.samples_per_step) and process.samples_per_step > 0):
        raise RunError(
            f"the meter of rank {rank} has samples_per_step={process.samples_per_step}",
            context="throughput is counted in these samples",
            remedy="pass a number above 0: bareboat_meter.Meter(samples_per_step=32)",
        )
    if process is not None and process.trained_with not in (0, process.world_size):
        raise RunError(
            f"rank {process.rank} trained with world size {process.trained_with}, but {process.world_size} "
            "ranks were started",
            context="each rank trained its own model, so this run does not measure the job",
            remedy="initialize the framework's process group; or Meter(independent=True), if intended",
        )
    if process is None or not process.ended_ns:
        raise RunError(
            f"the meter log {path} is incomplete",
            remedy="call meter.close() at the end of the training script",
        )
    return process


def read_so_far(folder: Path, rank: int) -> Process | None:
    """What the log of one rank has, up to the first line that is damaged; None: there is none."""
    process: Process | None = None
    with contextlib.suppress(msgspec.DecodeError, RecursionError, OSError, ValueError):
        for line in untrusted.read_bytes(_path(folder, rank), limit=_MOST_BYTES).splitlines():
            process = _with_line(process, line)
    return process


def _path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.jsonl"


def _with_line(process: Process | None, line: bytes) -> Process:
    """The process with what a line of its log says; a new one, where the line begins it. Raises as
    `_parsed`."""
    match _parsed(line):
        case Begun() as said:
            return Process(
                rank=said.rank,
                world_size=said.world_size,
                samples_per_step=float(said.samples_per_step),
                loaded_ns=said.loaded_ns,
                imported_ns=said.imported_ns,
                start_ns=said.imported_ns,
                independent=said.independent,
            )
        case World(size=size) if process is not None:
            process.trained_with = size
        case Started(at_ns=at_ns) if process is not None:
            process.start_ns = at_ns
        case Steps(opened_ns=opened_ns, ends_ns=ends_ns) if process is not None:
            process.stretches.append((opened_ns, ends_ns))
        case Result() as said if process is not None:
            process.reports.append(said)
        case Ended() as said if process is not None:
            process.released_ns = said.opened_ns
            process.ended_ns = said.at_ns
            process.peak_rss_bytes = said.peak_rss_bytes
        case _:
            raise ValueError(f"unexpected line {quoted(line.decode(errors='backslashreplace'))}")
    assert process is not None
    return process
