"""Pure: whether two runs are equal: values to a tolerance.

Times are never compared for equality of single runs: they differ by chance and by machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line
from bareboat_study.reproduction.document import Results

#: The relative difference that counts as equal, unless the user gives another.
TOLERANCE = 0.01
EXIT_CODE = "exit code"


class Compared(Struct, frozen=True, kw_only=True):
    """One comparison. `equal`: None: shown only, or not decided. `text`: the finding in words."""

    item: str
    first: str
    second: str
    equal: bool | None
    text: str = ""


class Tolerances(Struct, frozen=True, kw_only=True):
    """Relative tolerances: of all metrics, and of single ones by name. `ignored`: metrics only shown."""

    usual: float = TOLERANCE
    own: Mapping[str, float] = {}
    ignored: frozenset[str] = frozenset()

    def of(self, name: str) -> float:
        return self.own.get(name, self.usual)


def read_tolerances(given: Sequence[str], ignored: Sequence[str]) -> Tolerances:
    """Those of `--tolerance X` and `--tolerance NAME=X`. Raises UsageError."""
    usual, own = TOLERANCE, {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1 or (equals and not name):
            raise UsageError(
                f"--tolerance is {one_line(repr(text), limit=100)}; "
                "it must be a number from 0 to 1, or NAME=NUMBER",
                remedy="--tolerance 0.01, or --tolerance loss=0.05",
            )
        if equals:
            own[name] = value
        else:
            usual = value
    return Tolerances(usual=usual, own=own, ignored=frozenset(ignored))


def of_runs(first: Results, second: Results, tolerances: Tolerances) -> list[Compared]:
    """Exit code and metrics; times are only shown. `first`: the locked one."""
    found = [
        Compared(
            item=EXIT_CODE,
            first=str(first.exit_code),
            second=str(second.exit_code),
            equal=first.exit_code == second.exit_code,
        )
    ]
    for name in sorted(first.metrics.keys() | second.metrics.keys()):
        found.append(_metric(name, first.metrics.get(name), second.metrics.get(name), tolerances))
    if first.wall_s and second.wall_s:
        found.append(
            Compared(
                item="wall time",
                first=f"{first.wall_s:.1f} s",
                second=f"{second.wall_s:.1f} s",
                equal=None,
                text=f"ratio {second.wall_s / first.wall_s:.3f}; one run each, not judged",
            )
        )
    return found


def _metric(
    name: str, first: float | str | None, second: float | str | None, allowed: Tolerances
) -> Compared:
    compared = partial(Compared, item=name, first=_shown(first), second=_shown(second))
    if name in allowed.ignored:
        return compared(equal=None, text="ignored")
    if first is None or second is None:
        which = "the lock" if first is None else "the replay"
        return compared(equal=False, text=f"{which} does not report it")
    a, b = float(first), float(second)
    if not (math.isfinite(a) and math.isfinite(b)):
        return compared(equal=str(a) == str(b), text="not finite")
    relative, tolerance = abs(a - b) / (max(abs(a), abs(b)) or 1.0), allowed.of(name)
    text = f"differs by {_percent(relative)}; tolerance {_percent(tolerance)}" if relative else "equal"
    return compared(equal=relative <= tolerance, text=text)


def _shown(value: float | str | None) -> str:
    if value is None:
        return "not reported"
    return f"{value:.6g}" if isinstance(value, int | float) else value


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %"
