"""Reads what the meters of one arm's ranks wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from fairlead.errors import RunError


@dataclass(slots=True)
class Process:
    """One Python process of a rank that made a meter. Times are nanoseconds of CLOCK_MONOTONIC."""

    rank: int
    world_size: int
    samples_per_step: float
    loaded_ns: int
    imported_ns: int
    start_ns: int
    #: when the gate let this rank go on to what follows its last step
    released_ns: int = 0
    ended_ns: int = 0
    peak_rss_bytes: int = 0
    #: (opened, ends of the steps that followed), one entry per line
    stretches: list[tuple[int, list[int]]] = field(default_factory=list)
    results: dict[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return sum(len(ends) for _, ends in self.stretches)

    def step_seconds(self, first: int, last: int) -> tuple[float, ...]:
        """Seconds of the steps first..last-1, counted from 0."""
        seconds: list[float] = []
        for opened_ns, ends_ns in self.stretches:
            begin = opened_ns
            for end in ends_ns:
                seconds.append((end - begin) / 1e9)
                begin = end
        return tuple(seconds[first:last])

    def opened_ns(self, step: int) -> int:
        """When step `step`, counted from 0, began."""
        done = 0
        for opened_ns, ends_ns in self.stretches:
            if step < done + len(ends_ns):
                return opened_ns if step == done else ends_ns[step - done - 1]
            done += len(ends_ns)
        return self.ended_ns


def read_rank(folder: Path, rank: int) -> Process:
    """The log of one rank. Raises RunError when it is missing or cut short."""
    path = folder / f"rank-{rank:05d}.jsonl"
    process: Process | None = None
    try:
        for line in path.read_bytes().splitlines():
            said = msgspec.json.decode(line)
            match said:
                case {"kind": "process"}:
                    process = Process(
                        rank=said["rank"],
                        world_size=said["world_size"],
                        samples_per_step=said["samples_per_step"],
                        loaded_ns=said["loaded_ns"],
                        imported_ns=said["imported_ns"],
                        start_ns=said["imported_ns"],
                    )
                case {"kind": "start", "at_ns": at_ns} if process is not None:
                    process.start_ns = at_ns
                case {"kind": "steps", "opened_ns": opened_ns, "ends_ns": ends_ns} if process is not None:
                    process.stretches.append((opened_ns, ends_ns))
                case {"kind": "result", "name": name, "value": value} if process is not None:
                    process.results[name] = value
                case {"kind": "end"} if process is not None:
                    process.released_ns = said["opened_ns"]
                    process.ended_ns = said["at_ns"]
                    process.peak_rss_bytes = said["peak_rss_bytes"]
                case _:
                    raise ValueError(f"unexpected line {line[:80]!r}")
    except FileNotFoundError:
        raise RunError(f"rank {rank} left no meter log {path}") from None
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise RunError(f"the meter log {path} cannot be read: {error}") from None
    if process is None or not process.ended_ns:
        raise RunError(
            f"the meter log {path} is cut short",
            remedy="call meter.close() at the end of the training script",
        )
    return process
