"""Pure: whether taking turns changes what it measures.

Two witnesses: some runs have each arm once more alone, from start to end; and within a window, the first and
the last quarter take equally long, or the window measures how an arm starts again after a pause.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import UNSET

from bareboat import registry
from bareboat.model import Alone, Record, Study
from bareboat_study import pilot, t_statistic
from bareboat_study.windows import Pair, step_s

#: Of each interval: several are looked at.
_CONFIDENCE = 0.99
#: Squares of differences between neighbours, which share a value, count less than independent ones.
_SHARED = 2 / 3
#: Longer windows, where they measure a transient.
_LONGER = 4


class Factor(NamedTuple):
    """A ratio with its interval. `is_off`: it differs from 1 by more than a third of the margin, and by more
    than noise allows."""

    what: str
    ratio: float
    low: float
    high: float
    is_off: bool

    @property
    def text(self) -> str:
        return f"{self.what} {self.ratio:.4f} [{self.low:.4f}, {self.high:.4f}]"


def alone_in_turns(study: Study, pairs: Sequence[Pair]) -> list[Factor]:
    """The speed alone over that in turns, of each arm and of their ratio; empty without two runs that have
    both arms alone."""
    turns = [
        [-math.log(math.fsum(step_s(w) * len(w.step_s) for w in own.windows) / _steps(own)) for own in pair]
        for pair in pairs
    ]
    alone = [[_speed_alone(record) for record in pair] for pair in pairs]
    both = [number for number, (a, b) in enumerate(alone) if a is not None and b is not None]
    if len(both) < 2:
        return []
    names = [arm.name for arm in study.arms]
    found = []
    for what, weights in ((names[0], (1, 0)), (names[1], (0, 1)), ("their ratio", (-1, 1))):
        usual = [sum(w * own for w, own in zip(weights, run, strict=True)) for run in turns]
        beside = [
            sum(w * (own or 0.0) for w, own in zip(weights, alone[number], strict=True)) for number in both
        ]
        differences = [own - usual[number] for own, number in zip(beside, both, strict=True)]
        found.append(_factor(study, what, differences, usual))
    return found


def _factor(study: Study, what: str, differences: Sequence[float], usual: Sequence[float] = ()) -> Factor:
    """The mean of the differences. A run differs from itself alone as the `usual` runs do that follow each
    other, so that a slow drift of the machine is no noise."""
    mean = math.fsum(differences) / len(differences)
    between = [(b - a) ** 2 for a, b in itertools.pairwise(usual)]
    freedom = _SHARED * len(between) + len(differences) - 1
    square = math.fsum(between) + math.fsum((each - mean) ** 2 for each in differences)
    error = math.sqrt(square / (len(between) + len(differences) - 1) / len(differences))
    half = t_statistic.quantile((1 + _CONFIDENCE) / 2, freedom) * error
    is_off = abs(mean) > max(half, pilot.allowed(study.job.prove.margin))
    return Factor(what, math.exp(mean), math.exp(mean - half), math.exp(mean + half), is_off)


def transients(study: Study, pairs: Sequence[Pair]) -> list[Factor]:
    """How much longer the first quarter of the windows of each arm takes than the last one; empty where arms
    take no turns."""
    if study.alone_because or registry.is_queued(study.job.scheduler):
        return []
    found = []
    for number, arm in enumerate(study.arms):
        runs = [_transient(pair[number]) for pair in pairs]
        known = [each for each in runs if each is not None]
        if len(known) < 2:
            return []
        found.append(_factor(study, arm.name, known))
    return found


def _transient(record: Record) -> float | None:
    known = [each for window in record.windows if (each := pilot.transient(window.step_s)) is not None]
    return math.fsum(known) / len(known) if known else None


def _steps(record: Record) -> int:
    return sum(len(window.step_s) for window in record.windows)


def _speed_alone(record: Record) -> float | None:
    """Of the same steps as in turns; None where it was not measured."""
    own = record.alone
    if not isinstance(own, Alone) or own.code or own.wall_s <= 0:
        return None
    total = math.fsum(own.step_s[: _steps(record)])
    return -math.log(total / min(len(own.step_s), _steps(record))) if total > 0 else None


def _witnesses(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The runs in which each arm was alone, too, and those of them that ended well."""
    tried = [pair for pair in pairs if any(record.alone is not UNSET for record in pair)]
    return tried, [pair for pair in tried if all(_speed_alone(record) is not None for record in pair)]


def withheld(study: Study, pairs: Sequence[Pair]) -> str:
    """Why the ratio is no result, whatever it is; empty where it may be one."""
    tried, known = _witnesses(pairs)
    if len(tried) > 1 and len(known) < 2:
        return "the runs of each arm alone failed, so that nothing checks what taking turns changes"
    found = "; ".join(each.text for each in alone_in_turns(study, pairs) if each.is_off)
    if not found:
        return ""
    return (
        f"taking turns changes the speed of the arms: alone / in turns is, for {found}; measure each arm "
        "alone, in a scheduler's jobs or without the meter"
    )


def transient_text(study: Study, pairs: Sequence[Pair]) -> str:
    """Why arms are not called equivalent; empty where they may be."""
    found = "; ".join(each.text for each in transients(study, pairs) if each.is_off)
    if not found:
        return ""
    of_runs = [record for pair in pairs for record in pair]
    longest_s = max(math.fsum(window.step_s) for record in of_runs for window in record.windows)
    seconds = min(3600.0, longest_s * _LONGER)
    return (
        "the windows measure a transient: their first quarter takes longer than their last one by the "
        f"factor, for {found}, which is more than a third of the margin; try longer windows, with a longer "
        f"training: bareboat prove --set prove.window_s={seconds:.4g}"
    )


def notes(study: Study, pairs: Sequence[Pair]) -> Iterator[str]:
    """What the witnesses say, whether or not they agree."""
    if study.alone_because:
        yield (
            f"The arms do not take turns ({study.alone_because}): each run has every arm from start to end, "
            "one after the other, so that the drift of the machine between them is part of the interval."
        )
    tried, known = _witnesses(pairs)
    if found := alone_in_turns(study, pairs):
        yield (
            f"Alone / in turns, {len(known)} runs of each arm, {_CONFIDENCE:.0%} intervals: the speed of "
            f"{'; of '.join(each.text for each in found)}. {_wall_text(study, known)}"
        )
    elif tried:
        yield f"Of {len(tried)} runs with each arm alone, {len(known)} ended well: turns are not checked."
    if quarters := transients(study, pairs):
        yield (
            "The first quarter of the windows takes longer than the last one by the factor, for "
            f"{'; '.join(each.text for each in quarters)}."
        )


def _wall_text(study: Study, pairs: Sequence[Pair]) -> str:
    """The second witness: the wall times of the runs alone."""
    logs = [
        math.log(second.alone.wall_s / first.alone.wall_s)
        for first, second in pairs
        if isinstance(first.alone, Alone) and isinstance(second.alone, Alone)
    ]
    ratio = math.exp(math.fsum(logs) / len(logs))
    between = f"{study.arms[1].name} / {study.arms[0].name}"
    return f"The wall times of these runs alone have the ratio {ratio:.4f} ({between})."
