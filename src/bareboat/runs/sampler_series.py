"""The sampler's series of one run of an arm -> curves of a few points, and totals.

The sampler writes ten lines a second (`execute/sampler.py`). A record keeps what reports draw.
"""

from __future__ import annotations

import bisect
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from bareboat.model import Usage
from bareboat_base.files import untrusted

PROCESSES, DEVICES, GPUS = "processes.csv", "devices.csv", "gpus.csv"
#: In a run's directory for control: one directory of series for each node.
FOLDER = "usage"
#: Points of a record's curves.
MOST_POINTS = 240
#: A run of ten hours with a hundred ranks.
_MOST_BYTES = 512 << 20
_COUNTS = ("cpu_s", "read_bytes", "written_bytes", "minor_faults", "major_faults")
#: NVML's reasons that are no throttling: idle, clocks set by an application or a user, display.
_NO_THROTTLING = 0x1 | 0x2 | 0x100

#: A line of a series: its time in seconds, its rank or device, and its values.
_Row = tuple[float, str, dict[str, float]]


def read(
    found: Sequence[Path],
    *,
    began_s: float | None,
    phase_ends_s: Sequence[float] = (),
    exact: Mapping[str, float] | None = None,
    is_alone: bool = True,
) -> Usage | UnsetType:
    """The usage of a run; unset where nothing is known. `found`: the series of each node, that of the first
    node first. `began_s`: the arm's start on that node's monotonic clock; None: its first sample. `exact`:
    totals that are known better than from samples. `is_alone`: no other arm was alive, whose energy the
    devices would count, too."""
    curves: dict[str, list[tuple[list[float], list[float]]]] = defaultdict(list)
    totals: dict[str, float] = defaultdict(float)
    nodes, origin = 0, began_s
    for folder in found:
        rows = list(_rows(folder / PROCESSES))
        if not rows:
            continue
        nodes += 1
        if origin is None:
            origin = rows[0][0]
        for name, (times, values) in _summed(rows, ("rss_bytes", "pss_bytes", "cpu_s")).items():
            curves[name].append(([at - origin for at in times], values))
        for name in _COUNTS:
            totals[name] += _last_of_each(rows, name)
        devices = list(_rows(folder / DEVICES))
        for name, (times, values) in _of_gpus(devices).items():
            curves[name].append(([at - origin for at in times], values))
        if is_alone and (joules := _energy(devices)) is not None:
            totals["energy_j"] += joules
        _add_throttling(devices, totals)
        origin = None  # another node has a clock of its own
    if not nodes:  # it ended before the sampler had started
        return Usage(at_s=(), curves={}, totals=dict(exact)) if exact else UNSET
    end = max(times[-1] for each in curves.values() for times, _ in each)
    count = min(MOST_POINTS, max(len(times) for times, _ in curves["rss_bytes"]))
    grid = [end * (number + 1) / count for number in range(count)]
    if "throttle_samples" in totals:
        totals["throttled_percent"] = 100 * totals.pop("throttled", 0.0) / totals.pop("throttle_samples")
    return Usage(
        at_s=tuple(round(at, 3) for at in grid),
        curves={name: tuple(_together(parts, grid, name)) for name, parts in sorted(curves.items())},
        totals=dict(totals) | dict(exact or {}) | {"nodes": float(nodes)},
        phase_ends_s=tuple(phase_ends_s),
    )


def of_node(control: Path) -> Path:
    """Where the series of a run on this machine are written."""
    return control / FOLDER / os.uname().nodename


def folders(control: Path, first: str = "") -> list[Path]:
    """The series of each node; those of the node `first` before the others."""
    try:
        names = sorted(os.listdir(control / FOLDER), key=lambda name: (name != first, name))
    except OSError:
        return []
    return [control / FOLDER / name for name in names]


def keep(found: Iterable[Path], target: Path) -> None:
    """Copy the series of each node, unreduced, to this directory."""
    for folder in found:
        for file in (PROCESSES, DEVICES):
            try:
                data = untrusted.read_bytes(folder / file, limit=_MOST_BYTES)
            except OSError:
                continue
            place = target / folder.name
            place.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(data)


# --------------------------------------------------------------------------------------------------
# Reading.


def _rows(path: Path) -> Iterator[_Row]:
    """The lines of a series; damaged ones are left out, as the last one after a power failure."""
    try:
        text = untrusted.read_text(path, limit=_MOST_BYTES)
    except (OSError, UnicodeDecodeError):
        return
    import csv  # the shortest runs have no series

    lines = csv.reader(text.splitlines())
    head = next(lines, [])
    for line in lines:
        if len(line) != len(head):
            continue
        try:
            values = {name: _number(text) for name, text in zip(head[2:], line[2:], strict=True) if text}
            at_s = float(line[0])
        except ValueError:
            continue
        if all(map(math.isfinite, (at_s, *values.values()))):
            yield at_s, line[1], values


def _number(text: str) -> float:
    return float(int(text, 16)) if text.startswith("0x") else float(text)


def _summed(rows: Iterable[_Row], names: Sequence[str]) -> dict[str, tuple[list[float], list[float]]]:
    """The sums over ranks or devices, by time."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for name in names:
        sums: dict[float, float] = {}
        for at_s, _, values in rows:
            if name in values:
                sums[at_s] = sums.get(at_s, 0.0) + values[name]
        if sums:
            found[name] = (list(sums), list(sums.values()))
    return found


def _of_gpus(rows: Sequence[_Row]) -> dict[str, tuple[list[float], list[float]]]:
    gpus = [row for row in rows if row[1].startswith("gpu-")]
    count = len({device for _, device, _ in gpus}) or 1
    found = _summed(gpus, ("memory_bytes", "utilisation_percent", "power_w"))
    named = {"memory_bytes": "gpu_memory_bytes", "utilisation_percent": "gpu_percent", "power_w": "power_w"}
    return {
        named[name]: (times, [value / (count if name == "utilisation_percent" else 1) for value in values])
        for name, (times, values) in found.items()
    }


def _last_of_each(rows: Iterable[_Row], name: str) -> float:
    last: dict[str, float] = {}
    for _, key, values in rows:
        last[key] = max(last.get(key, 0.0), values.get(name, 0.0))
    return math.fsum(last.values())


def _energy(rows: Iterable[_Row]) -> float | None:
    """Joules between the first and the last sample; None where no device counts them."""
    ends: dict[str, tuple[float, float]] = {}
    for _, device, values in rows:
        if "energy_j" in values:
            first, _last = ends.get(device, (values["energy_j"],) * 2)
            ends[device] = (first, values["energy_j"])
    return math.fsum(last - first for first, last in ends.values()) if ends else None


def _add_throttling(rows: Iterable[_Row], totals: dict[str, float]) -> None:
    for _, _, values in rows:
        if "throttle_reasons" in values:
            totals["throttle_samples"] += 1
            totals["throttled"] += bool(int(values["throttle_reasons"]) & ~_NO_THROTTLING)


def _together(
    parts: Iterable[tuple[list[float], list[float]]], grid: Sequence[float], name: str
) -> Iterator[float]:
    """The sum over nodes at each time of the grid: of memory the largest value since the time before, of
    counts the last one."""
    made = [list(_on_grid(times, values, grid, is_peak="bytes" in name)) for times, values in parts]
    for values in zip(*made, strict=True):
        total = math.fsum(values)
        yield total / len(values) if name == "gpu_percent" else total


def _on_grid(
    times: Sequence[float], values: Sequence[float], grid: Sequence[float], *, is_peak: bool
) -> Iterator[float]:
    begin, last = 0, 0.0
    for at in grid:
        end = bisect.bisect_right(times, at + 1e-6)
        if end > begin:
            last = max(values[begin:end]) if is_peak else values[end - 1]
        begin = end
        yield last
