"""Pure: the range of every number that a user sets in a job file, a setting, an environment variable or a
flag."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from bareboat.errors import UsageError


class Range(NamedTuple):
    """The allowed values, both ends included unless `open`. `example`: one of them, as written."""

    least: float
    most: float
    example: str
    whole: bool = True
    open: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.most == 1e308:
            return f"{kind}, not nan or inf"
        between = ("between", "and") if self.open else ("from", "to")
        return f"{kind} {between[0]} {self.least:,} {between[1]} {self.most:,}"

    def holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        if not self.open:
            return self.least <= value <= self.most
        return self.least < value < self.most


_SECONDS = 100_000_000  # three years
_COUNT = 2**63 - 1  # the limit of JSON and other programs

#: By the job file's key, or by the flag where there is no key.
RANGES = {
    "topology.nodes": Range(1, 1_000_000, "1"),
    "topology.ranks_per_node": Range(1, 10_000, "1"),
    "topology.cpus_per_rank": Range(1, 10_000, "1"),
    "topology.gpus_per_rank": Range(0, 1_000, "1"),
    "walltime_s": Range(1, _SECONDS, "3600"),
    # Schedulers count in MiB; for Slurm, 0 means all memory.
    "scheduling.mem_per_node_bytes": Range(2**20, 2**50, "8589934592"),
    "scheduling.warning_s": Range(0, _SECONDS, "120"),
    "scheduling.watchdog_s": Range(0, _SECONDS, "600"),
    "prove.repeats": Range(2, 100_000, "10"),
    "prove.margin": Range(0, 1, "0.02", whole=False, open=True),
    "prove.confidence": Range(0.5, 1, "0.95", whole=False, open=True),
    "prove.seed": Range(0, _COUNT, "1"),
    "prove.window_s": Range(0.001, 3600, "0.2", whole=False),
    "prove.goals": Range(-1e308, 1e308, "0.9", whole=False),
    "tool_timeout_s": Range(0.01, 86_400, "60", whole=False),
    "--at-once": Range(1, 100_000, "8"),
    "--rank": Range(0, _COUNT, "0"),
    "--older-than": Range(0, 1_000_000, "30", whole=False),
    "--max-unpacked": Range(1, 2**60, "107374182400"),
    "--max-entries": Range(1, 10**9, "10000000"),
    "--max-ratio": Range(1, 1_000_000, "2000", whole=False),
}
#: The limits of a job's ranks and of a sweep's points.
MOST_RANKS = 10_000_000
MOST_POINTS = 100_000


def check(key: str, value: Any, *, name: str = "") -> None:
    """Raise UsageError for a value outside its range. `name`: the user's name for it, if not the key."""
    allowed = RANGES[key]
    if allowed.holds(value):
        return
    name = name or key
    remedy = f"{name} {allowed.example}" if name.startswith("--") else setting(name, allowed.example)
    raise UsageError(f"{name} is {shown(value)}; it must be {allowed}", key=name, remedy=remedy)


def setting(key: str, value: str) -> str:
    """The text that sets a job file's key or a setting."""
    table, _, last = key.rpartition(".")
    return f"set {last} = {value}" + (f" under [{table}]" if table else "")


def parse(key: str, text: str, *, name: str) -> Any:
    """The number of a flag or an environment variable. Raises UsageError, with `name`."""
    allowed = RANGES[key]
    try:
        value = int(text) if allowed.whole else float(text)
    except ValueError:
        value = None
    if not allowed.holds(value):
        remedy = f"{name} {allowed.example}" if name.startswith("-") else f"export {name}={allowed.example}"
        raise UsageError(f"{name} is {text[:60]!r}; it must be {allowed}", key=name, remedy=remedy)
    return value


def shown(value: Any) -> str:
    """A value for a message; a very long number is shown by its digit count."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {int(value.bit_length() * math.log10(2)) + 1:,} digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
