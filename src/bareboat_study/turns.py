"""Pure: the order of a study's arms: permuted blocks, drawn from the study's seed.

In every `arms` consecutive runs each arm starts once at each position, and in every `arms` consecutive blocks
of windows each arm has each position once. So the effect of the position cancels in the mean of the runs, and
which arm is first in a single run or block is still random.
"""

from __future__ import annotations

import random

from msgspec import UNSET

from bareboat import registry
from bareboat.model import Study

_EARLY = (2, 5)


def starts(study: Study, run: int) -> tuple[int, ...]:
    """The order in which the arms start in a run; run 0 is the warm-up, with an order of its own."""
    if run == 0:
        return tuple(_generator(study, "warm-up").sample(range(len(study.arms)), len(study.arms)))
    return _order(study, "starts", run - 1)


def windows(study: Study, run: int, block: int) -> tuple[int, ...]:
    """The order of the arms in a block of windows."""
    return _order(study, f"windows/{run}", block)


def has_alone(study: Study, run: int) -> bool:
    """Whether each arm is also alone, from start to end, in a run whose arms take turns: in two early runs,
    before any look at the data, and in every tenth after those of the first look."""
    if not study.metered or study.alone_because or registry.is_queued(study.job.scheduler):
        return False
    early = _EARLY if study.job.prove.repeats >= max(_EARLY) else (1, 2)
    return run in early or (run > 10 and run % 10 == 0)


def layouts(study: Study, run: int) -> tuple[int, ...]:
    """The order in which the files of the arms are read before a run."""
    return _order(study, "layouts", run - 1)


def _order(study: Study, what: str, place: int) -> tuple[int, ...]:
    """A row of a Latin square, whose arms and rows are drawn for every `arms` places."""
    arms = len(study.arms)
    square, row = divmod(place, arms)
    draw = _generator(study, f"{what}/{square}")
    labels = draw.sample(range(arms), arms)
    shift = draw.sample(range(arms), arms)[row]
    return tuple(labels[(position + shift) % arms] for position in range(arms))


def _generator(study: Study, what: str) -> random.Random:
    point = "" if study.point is UNSET else f"/{study.point}"
    return random.Random(f"{study.order_seed}{point}/{what}")
