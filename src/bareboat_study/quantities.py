"""Pure: the quantities of a record that are metrics of a study, besides the throughput."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from msgspec import UNSET

from bareboat.model import Record

NO_METER = (
    "The command has no meter: wall time and memory of whole runs are compared, in adjacent pairs. "
    "Three lines in a Python script measure its steps: docs/meter.md."
)
_PHASES = {
    "process_start_s": "process start",
    "import_s": "import",
    "setup_s": "set-up",
    "first_step_s": "first step",
}


def of_runs(metered: bool) -> list[tuple[str, str, Callable[[Record], float]]]:
    """The metrics besides throughput; the first is primary without a meter."""
    quantities: list[tuple[str, str, Callable[[Record], float]]] = [
        ("wall time", "s", lambda record: record.wall_s or 0.0),
        ("peak memory", "bytes", lambda record: float(record.peak_memory_bytes)),
        ("CPU time", "s", lambda record: total(record, "cpu_s")),
        ("peak GPU memory", "bytes", _peak_gpu_memory),
        ("energy", "J", lambda record: total(record, "energy_j")),
        ("energy per sample", "J", _energy_per_sample),
    ]
    return [
        *quantities,
        *((label, "s", attrgetter(f"phases.{name}")) for name, label in _PHASES.items() if metered),
    ]


def total(record: Record, name: str) -> float:
    """One of the sampler's totals; 0 where it is not known."""
    return 0.0 if record.usage is UNSET else record.usage.totals.get(name, 0.0)


def _peak_gpu_memory(record: Record) -> float:
    return 0.0 if record.usage is UNSET else max(record.usage.curves.get("gpu_memory_bytes", ()), default=0.0)


def _energy_per_sample(record: Record) -> float:
    """Joules of the whole run for each sample that was trained on; 0 without a meter that counts samples."""
    steps = sum(len(window.step_s) for window in record.windows)
    samples = steps * (record.samples_per_step or 0.0)
    return total(record, "energy_j") / samples if samples else 0.0
