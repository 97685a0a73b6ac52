"""What engines cost: figures by which the planner ranks them, measured by `bench/engines.py --costs`. Each
engine defines its own.

They are ranks, not predictions: another machine has other milliseconds, but similar ratios. Differences
smaller than the measurement's own spread get the same figure, so that noise does not decide a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from bareboat.engines import Engine

#: The time of one file call (a stat of a file in the page cache) on bare metal.
FILE_CALL_S = 1.3e-6


class Cost(Struct, frozen=True, kw_only=True):
    """`start_ms`: a whole start of /bin/true by Bareboat's job script. The others are ratios to bare metal:
    `file_call` of 200,000 calls of stat, `imports` of `import torch`, `cpu` of a loop that computes."""

    start_ms: float
    file_call: float
    imports: float
    cpu: float = 1.0

    def added_s(self, file_calls: int) -> float:
        """Seconds that one start and `file_calls` calls take longer than the calls alone on bare metal.

        `imports` and `cpu` are ignored: an import costs its file calls, and no engine was found to slow
        computation.
        """
        return self.start_ms / 1e3 + file_calls * FILE_CALL_S * (self.file_call - 1)


#: An engine's `COSTS`: (mode, form) -> cost. Mode "" is its only or usual one; form "" is the flat tree,
#: "layers" are layers stacked by overlayfs, "file" is the image packed into one file.
Costs = Mapping[tuple[str, str], Cost]


def of(engine: Engine, *, mode: str = "", form: str = "") -> Cost | None:
    """The cost of an engine; of its usual mode and form where this one was not measured; None for an engine
    that was not measured."""
    known = engine.COSTS
    tried = ((mode, form), (mode, ""), ("", form), ("", ""))
    return next((known[key] for key in tried if key in known), None)


def all_of(engine: Engine, *, form: str) -> tuple[Cost, ...]:
    """The costs of an engine in this form in each of its modes; () for an engine that was not measured."""
    modes = {mode for mode, _ in engine.COSTS}
    return tuple(cost for mode in modes if (cost := of(engine, mode=mode, form=form)) is not None)
