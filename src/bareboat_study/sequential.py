"""Pure: a study that ends as soon as it is decided, with its error rate kept.

The design fixes at most `MOST_LOOKS` interim analyses (looks), after so many runs each. At a look the verdict
is tested at the level of the study divided by the number of looks, and the interval has the same level
(Bonferroni). The probability of any wrong claim at any look is then at most the level of the study, whatever
the dependence of the looks, and the intervals of all looks hold together: repeated confidence intervals. With
the few runs of a study, this is exact where the bounds of Pocock or of O'Brien and Fleming would be
approximations.

Source: Jennison and Turnbull (1999), Group Sequential Methods with Applications to Clinical Trials, chapter
9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bareboat.model import ProveRequest
from bareboat_study.blocks import DECIDING_REPEATS

if TYPE_CHECKING:
    from bareboat_study.statistics import Comparison

MOST_LOOKS = 4
#: The number of runs of such a study, unless another is chosen.
MOST_RUNS = 40


def looks(repeats: int) -> tuple[int, ...]:
    """The numbers of runs after which the data are analysed, in equal steps; even, so that the order of the
    arms is balanced."""
    found = []
    for number in range(1, MOST_LOOKS):
        runs = round(repeats * number / MOST_LOOKS / 2) * 2
        if DECIDING_REPEATS <= runs < repeats:
            found.append(runs)
    return (*dict.fromkeys(found), repeats)


def planned(prove: ProveRequest) -> tuple[int, ...]:
    """The numbers of runs after which a study is analysed: its looks, or its end alone."""
    return looks(prove.repeats) if prove.until_decided else (prove.repeats,)


def confidence(prove: ProveRequest) -> float:
    """The level of the intervals of a study, and of its tests: that of each look where there are several."""
    level = prove.confidence
    return 1 - (1 - level) / len(planned(prove)) if prove.until_decided else level


def runs_to_judge(prove: ProveRequest, done: int, judge: Callable[[int], Comparison | None]) -> int | None:
    """The number of runs that the verdict is made of: of the first look that decides, or of the last one;
    None: the study goes on. `done`: complete runs; `judge`: of the first runs, so many."""
    from bareboat_study.statistics import OPEN  # here, because designs are also read without numpy

    for runs in planned(prove):
        if done < runs:
            return None
        if runs == prove.repeats:
            return runs
        found = judge(runs)
        if found is not None and found.verdict not in OPEN:
            return runs
    return None
