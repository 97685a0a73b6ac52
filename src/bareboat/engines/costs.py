"""What engines cost: figures for the planner to rank them by, measured by `bench/engines.py --costs`. Each
engine says its own.

They are ranks, not predictions: another machine has other milliseconds, and much the same ratios. What
differs by less than the measurement's own spread is given the same figure, so that no choice hangs on noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bareboat.engines import Engine

#: What one file call (a stat of a file in the page cache) takes on bare metal.
FILE_CALL_S = 1.3e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """`start_ms`: a whole start of /bin/true by Bareboat's job script. The others are ratios to bare metal:
    `file_call` of 200,000 calls of stat, `imports` of `import torch`, `cpu` of a loop that computes."""

    start_ms: float
    file_call: float
    imports: float
    cpu: float = 1.0

    def added_s(self, file_calls: int) -> float:
        """What one start and so many file calls take longer than the calls alone on bare metal.

        `imports` and `cpu` are not weighed: what an import costs is its file calls, and no engine was found
        that slows what computes.
        """
        return self.start_ms / 1e3 + file_calls * FILE_CALL_S * (self.file_call - 1)


#: What an engine says as its `COSTS`: (mode, form) -> cost. Mode "" is its only or usual one; form "" is the
#: flat tree, "layers" are layers stacked by overlayfs, "file" is the image packed into one file.
#:
#: Measured on 2026-11-22 on a virtual machine (AMD EPYC, 2 CPUs, kernel 6.18, ext4, warm): starts with
#: nothing beside, ratios with other work beside, from the least of the samples. Forms "file" were
#: measured on 2026-11-20 with the tools by hand on such a machine, not yet by Bareboat's scripts; the starts
#: of udocker's F1 and S1 with other work beside.
Costs = Mapping[tuple[str, str], Cost]


def of(engine: Engine, *, mode: str = "", form: str = "") -> Cost | None:
    """The cost of an engine; of its usual mode and form where this one has not been measured; None for an
    engine that nobody measured."""
    known: Costs = getattr(engine, "COSTS", {})
    tried = ((mode, form), (mode, ""), ("", form), ("", ""))
    return next((known[key] for key in tried if key in known), None)


def all_of(engine: Engine, *, form: str) -> tuple[Cost, ...]:
    """The costs of an engine in this form in each of its modes; () for an engine that nobody measured."""
    modes = {mode for mode, _ in getattr(engine, "COSTS", {})}
    return tuple(cost for mode in modes if (cost := of(engine, mode=mode, form=form)) is not None)
