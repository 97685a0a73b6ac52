"""Measure how often a study's verdict is wrong, with simulated studies whose true ratio is known.

    python bench/verdict.py [WORDS] [--studies 1000] [--seed 1]

First the windows of machines that stall, wait and drift, prefer the arm that starts first, and read
copies that lie differently in the page cache. Then the values of whole runs: with noise that is not normal,
with three arms, runs that fail, and 24 points. Prints a table as Markdown. Exits with 1 if the analysis that
Bareboat uses breaks a guarantee.
Requires `bareboat[study]`; no machine is measured, so the output depends on the arguments only.
"""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats
from simulate import (
    BUSY,
    Design,
    Floats,
    Judge,
    Machine,
    Method,
    Rates,
    correlated,
    error_rates,
    peeking,
    until_decided,
)

from bareboat_study.statistics import Mean, Verdict, compare, contrast, holm_corrected

MARGIN = 0.02
CONFIDENCE = 0.95
EDGE = 1 + MARGIN
TRUE_RATIOS = (1.0, EDGE, 1 / EDGE, 1.04)
HEADER = (
    "studies",
    "1.00: different",
    "1.02: equivalent",
    "1/1.02: equivalent",
    "1.04: different",
    "interval holds the ratio, least",
    "half width",
)
#: Of the log of an arm's value in a run.
DEVIATION = 0.01

Noise = Callable[[np.random.Generator, int], Floats]


class Windows(NamedTuple):
    """Studies of a simulated machine. `is_guaranteed`: the command fails if they break a guarantee."""

    title: str
    method: Method
    machine: Machine
    is_guaranteed: bool = False
    runs: int = 12
    judge: Judge | None = None

    def rates(self, true_ratio: float, studies: int, seed: int) -> Rates:
        design = Design(runs=self.runs, blocks=60, margin=MARGIN, confidence=CONFIDENCE)
        return error_rates(
            true_ratio, design, studies=studies, seed=seed, method=self.method, machine=self.machine,
            judge=self.judge,
        )  # fmt: skip


class Values(NamedTuple):
    """Studies of whole runs. `noise`: of one arm; `contender`: of the contender, if it has another. An arm
    gains `position` with each position, and `lost` of its runs fail. Of several `points`, all with the same
    ratio, one wrong claim makes the study wrong."""

    title: str
    noise: Noise
    contender: Noise | None = None
    is_guaranteed: bool = True
    arms: int = 2
    position: float = 0.0
    lost: float = 0.0
    points: int = 1
    runs: int = 12

    def rates(self, true_ratio: float, studies: int, seed: int) -> Rates:
        generator = np.random.default_rng(seed)
        found = []
        claims = dict.fromkeys(Verdict, 0)
        for _ in range(studies):
            means = [self._mean(math.log(true_ratio), generator) for _ in range(self.points)]
            compared = [compare(mean, margin=MARGIN, confidence=CONFIDENCE) for mean in means]
            for verdict in {verdict for _, _, verdict in holm_corrected(compared)}:
                claims[verdict] += 1
            found += compared
        return Rates(
            true_ratio=true_ratio,
            studies=studies,
            equivalent=claims[Verdict.EQUIVALENT] / studies,
            different=claims[Verdict.DIFFERENT] / studies,
            undecided=claims[Verdict.UNDECIDED] / studies,
            coverage=sum(each.low <= true_ratio <= each.high for each in found) / len(found),
            half_width=float(np.median([each.half_width for each in found])),
            runs=float(np.mean([each.runs for each in found])),
        )

    def _mean(self, log_ratio: float, generator: np.random.Generator) -> Mean:
        squares = [generator.permutation(self.arms) for _ in range(-(-self.runs // self.arms))]
        places = np.array([np.roll(each, shift) for each in squares for shift in range(self.arms)])
        places = places[: self.runs]
        noises = [self.noise, self.contender or self.noise, *[self.noise] * (self.arms - 2)]
        logs = np.column_stack([noise(generator, self.runs) for noise in noises])
        logs += generator.normal(0, 0.1, (self.runs, 1)) + self.position * places
        logs[:, 1] += log_ratio
        kept = (generator.random(places.shape) >= self.lost).all(axis=1)
        return contrast(logs[kept], places[kept])


def normal(generator: np.random.Generator, runs: int) -> Floats:
    found: Floats = generator.normal(0, DEVIATION, runs)
    return found


def outliers(generator: np.random.Generator, runs: int) -> Floats:
    """One run in 20 is 5 % off, up or down."""
    far: Floats = generator.choice((-0.05, 0, 0.05), runs, p=(0.025, 0.95, 0.025))
    return normal(generator, runs) + far


def student(generator: np.random.Generator, runs: int) -> Floats:
    return generator.standard_t(3, runs) * DEVIATION / math.sqrt(3)


def lognormal(generator: np.random.Generator, runs: int) -> Floats:
    """Skewed: few runs are much slower than the others."""
    return (math.sqrt(math.e) - generator.lognormal(0, 1, runs)) * DEVIATION / math.sqrt(math.e**2 - math.e)


def dependent(generator: np.random.Generator, runs: int) -> Floats:
    return correlated((runs,), DEVIATION, 0.5, generator)


def stalled(share: float, cost: float, generator: np.random.Generator, runs: int) -> Floats:
    """This share of the runs loses `cost`, which is in the true ratio."""
    return normal(generator, runs) + cost * (share - (generator.random(runs) < share))


STALLS = Machine(stall_share=0.05, stall_factor=2.0)
NOISY = Machine(run_deviation=0.03)
COPIES = Machine(copy_deviation=0.01)
CASES: tuple[Windows | Values, ...] = (
    Windows("no fault, total times", Method.TOTAL, Machine(), True),
    Windows("5 % of the contender's windows take twice as long", Method.TOTAL, STALLS, True),
    Windows("1 % take three times as long", Method.TOTAL, Machine(stall_share=0.01, stall_factor=3.0)),
    Windows("5 % again, trimmed mean", Method.TRIMMED, STALLS),
    Windows("second to start 3 % slower, second window 1 %", Method.TOTAL, Machine(
        start_order=0.03, window_order=0.01), True),
    Windows("runs correlated by 0.3", Method.TOTAL, Machine(run_correlation=0.3)),
    Windows("a busy machine (waits as long as the work)", Method.TOTAL, BUSY, True),
    Windows("copies 0.5 %, one for the study", Method.TOTAL, replace(COPIES, copy_deviation=0.005)),
    Windows("copies 1 %, one for the study", Method.TOTAL, COPIES),
    Windows("copies 1 %, another for each run", Method.TOTAL, replace(COPIES, is_redrawn=True), True),
    Windows("every block counted as independent", Method.POOLED, Machine()),
    Windows("all of one arm, then all of the other", Method.UNPAIRED, Machine()),
    Windows("40 runs of 3 %, a look after each", Method.TOTAL, NOISY, False, 40, peeking(MARGIN, CONFIDENCE)),
    Windows("the same, `--until-decided`", Method.TOTAL, NOISY, True, 40, until_decided(MARGIN, CONFIDENCE)),
    Values("normal noise", normal),
    Values("outliers: one run in 20 is 5 % off", outliers),
    Values("Student's t with 3 degrees of freedom", student),
    Values("the contender is lognormal", normal, lognormal, False),
    Values("AR(1) of 0.5 from run to run", dependent, is_guaranteed=False),
    Values("a quarter of the contender's runs loses 20 %", normal, partial(stalled, 0.25, 0.2), False),
    Values("a tenth of the contender's runs loses 5 %", normal, partial(stalled, 0.1, 0.05), False),
    Values("each arm fails in 10 % of its runs", normal, lost=0.1),
    Values("three arms, 3 % for each position", normal, arms=3, position=0.03),
    Values("the same, each fails in 10 % of its runs", normal, arms=3, position=0.03, lost=0.1),
    Values("the same, 10 runs", normal, arms=3, position=0.03, lost=0.1, runs=10),
    Values("24 points, normal noise", normal, points=24),
    Values("24 points, outliers", outliers, points=24),
    Values("24 points, Student's t with 3 degrees of freedom", student, points=24),
    Values("24 points, three arms, 3 % for each position", normal, arms=3, position=0.03, points=24),
)  # fmt: skip


def row(case: Windows | Values, studies: int, seed: int) -> tuple[tuple[str, ...], bool]:
    """The cells of a case, and whether it keeps the guarantees. Bold: worse than chance allows in 999 of
    1,000 tables."""
    # Each ratio has its own seed: with a shared one all would share the same random numbers.
    rates = [case.rates(ratio, studies, seed + at) for at, ratio in enumerate(TRUE_RATIOS)]
    points = case.points if isinstance(case, Values) else 1
    null, above, below, beyond = rates
    least = min(each.coverage for each in rates)
    wrong = (null.different, above.equivalent, below.equivalent, 1 - least)
    most = [float(stats.binom.ppf(0.999, n, 1 - CONFIDENCE)) / n for n in [studies] * 3 + [studies * points]]
    broken = [share > limit for share, limit in zip(wrong, most, strict=True)]
    shown = [percent(share) for share in (*wrong[:3], least)]
    bold = [f"**{text}**" if is_broken else text for text, is_broken in zip(shown, broken, strict=True)]
    half_width = f"±{percent(null.half_width, digits=2)}"
    cells = (case.title, *bold[:3], percent(beyond.different), bold[3], half_width)
    return cells, not any(broken) or not case.is_guaranteed


def percent(share: float, *, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="?", default="", help="only the cases whose titles contain this")
    parser.add_argument("--studies", type=int, default=1000, help="simulated studies per cell")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal tables")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n{'|---' * len(HEADER)}|")
    kept = True
    for case in (each for each in CASES if options.words in each.title):
        cells, is_kept = row(case, options.studies, options.seed)
        kept = kept and is_kept
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
