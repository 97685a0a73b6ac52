"""Simulated studies with a known true ratio: how often is the analysis wrong?

They go through the same `compare` as measured ones. Pure: a seed in, rates out.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.stats import trim_mean

from bareboat_study import sequential
from bareboat_study.statistics import OPEN, Comparison, Mean, Verdict, compare, contrast

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How the step time varies. Deviations are of the natural log: 0.03 is about 3 %.

    `run_deviation`: of a run's log ratio, shared by all its blocks (memory layout, page placement);
    `run_correlation`: from one run to the next, AR(1).
    `window_deviation`, `window_correlation`: noise of an arm's windows, AR(1) from one to its next.
    `drift_least`, `drift_most`: the swing, from fastest to slowest, that both arms share; it goes through
    up to `drift_cycles` slow waves in a study. `spike_probability`: that a window of either arm is struck by
    a spike, which multiplies its time by 1 + `spike_least` to 1 + `spike_most`.

    Of the contender alone: `stall_share` of its windows take `stall_factor` times as long. `wait`: the
    mean of the log by which the windows of both arms are longer because they waited for a processor,
    exponentially distributed.

    `start_order`, `window_order`: how much slower an arm is that started second, and a window that comes
    second. `copy_deviation`: of the log ratio of a study, because each study reads another copy with another
    layout in the page cache; `is_redrawn`: it is redrawn before each run.
    """

    run_deviation: float = 0.007
    run_correlation: float = 0.0
    window_deviation: float = 0.03
    window_correlation: float = 0.5
    drift_least: float = 0.10
    drift_most: float = 0.20
    drift_cycles: float = 2.0
    spike_probability: float = 0.02
    spike_least: float = 0.2
    spike_most: float = 1.0
    wait: float = 0.0
    stall_share: float = 0.0
    stall_factor: float = 1.0
    start_order: float = 0.0
    window_order: float = 0.0
    copy_deviation: float = 0.0
    is_redrawn: bool = False


#: Other work requires twice the number of processors.
BUSY = Machine(wait=0.7)


class Method(StrEnum):
    """How a study is run and analysed: Bareboat's, and others for comparison."""

    TOTAL = "arms take turns, the total time of each run"
    TRIMMED = "arms take turns, the trimmed mean of each run's windows"
    POOLED = "arms take turns, every block counted as independent"
    UNPAIRED = "all of one arm, then all of the other, the total time of each run"


@dataclass(frozen=True, slots=True)
class Simulated:
    """A study. `times[arm, run, block]`: log step times. `orders[run]`: whether the contender started
    second."""

    times: Floats
    orders: tuple[bool, ...]

    @property
    def blocks(self) -> Floats:
        """The log(contender / baseline) of every block."""
        ratios: Floats = self.times[1] - self.times[0]
        return ratios

    def effects(self, method: Method) -> list[float]:
        """The log ratio of step times of every run, or of every block."""
        match method:
            case Method.TOTAL | Method.UNPAIRED:
                totals = np.log(np.exp(self.times).sum(axis=2))
                found: list[float] = (totals[1] - totals[0]).tolist()
                return found
            case Method.TRIMMED:
                return [float(trim_mean(run, 0.2)) for run in self.blocks]
            case Method.POOLED:
                every: list[float] = self.blocks.ravel().tolist()
                return every


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Results of `studies` simulated studies. Shares are between 0 and 1; the first three add up to 1.

    `coverage` is the share whose interval holds the true ratio; `half_width` is the median half width of
    the interval on the log scale, so 0.01 is about 1 %. `runs`: the mean number of runs.
    """

    true_ratio: float
    studies: int
    equivalent: float
    different: float
    undecided: float
    coverage: float
    half_width: float
    runs: float


def study(
    true_ratio: float,
    *,
    runs: int,
    blocks: int,
    generator: np.random.Generator,
    machine: Machine | None = None,
    paired: bool = True,
) -> Simulated:
    """One study whose arms have this true ratio of total times, stalls included.

    Paired: the two windows of a block follow each other, and both orders are balanced. Not paired: the
    baseline has the first half of the time and the contender the second; block i of run j then sets equal
    places in the two halves against each other.
    """
    machine = machine or Machine()
    times = np.stack([_window_noise(runs, blocks, generator, machine) for _arm in range(2)])
    stalled = generator.random((runs, blocks)) < machine.stall_share
    times[1] += stalled * math.log(machine.stall_factor)
    times[1] += math.log(true_ratio / (1 + machine.stall_share * (machine.stall_factor - 1)))
    times[1] += correlated((runs,), machine.run_deviation, machine.run_correlation, generator)[:, None]
    copies = generator.normal(0, machine.copy_deviation, (runs if machine.is_redrawn else 1, 1))
    times[1] += copies
    second = _balanced(runs, generator)
    times[1] += np.where(second, 1, -1)[:, None] * machine.start_order / 2
    windows = np.stack([_balanced(blocks, generator) for _run in range(runs)])
    times[1] += np.where(windows, 1, -1) * machine.window_order / 2
    if machine.wait:
        times += generator.exponential(machine.wait, times.shape)
    times += _drift(_places(windows, paired=paired), generator, machine)
    return Simulated(times, tuple(bool(each) for each in second))


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Of a simulated study: runs of blocks each, and the limits of its verdict."""

    runs: int
    blocks: int
    margin: float
    confidence: float


def error_rates(
    true_ratio: float,
    design: Design,
    *,
    studies: int,
    seed: int,
    method: Method = Method.TOTAL,
    machine: Machine | None = None,
    judge: Callable[[Sequence[float], Sequence[bool]], Comparison] | None = None,
) -> Rates:
    """Simulate `studies` studies of this design whose true ratio is known.

    `judge`: of the effects and orders of a study; None: one test of all of its runs. Equal arguments give
    equal rates.
    """
    generator = np.random.default_rng(seed)
    found: list[Comparison] = []
    for _study in range(studies):
        simulated = study(
            true_ratio, runs=design.runs, blocks=design.blocks, generator=generator, machine=machine,
            paired=method is not Method.UNPAIRED,
        )  # fmt: skip
        effects = simulated.effects(method)
        if judge is not None:
            found.append(judge(effects, simulated.orders))
            continue
        orders = simulated.orders if method is Method.TOTAL else None
        found.append(compare(mean(effects, orders), margin=design.margin, confidence=design.confidence))
    verdicts = Counter(comparison.verdict for comparison in found)
    return Rates(
        true_ratio=true_ratio,
        studies=studies,
        equivalent=verdicts[Verdict.EQUIVALENT] / studies,
        different=verdicts[Verdict.DIFFERENT] / studies,
        undecided=sum(verdicts[each] for each in OPEN) / studies,
        coverage=sum(c.low <= true_ratio <= c.high for c in found) / studies,
        half_width=float(np.median([c.half_width for c in found])),
        runs=float(np.mean([c.runs for c in found])),
    )


def mean(effects: Sequence[float], orders: Sequence[bool] | None = None) -> Mean:
    """That of two arms. `orders`: whether the contender started second in each run."""
    positions = [(not second, second) for second in orders] if orders else None
    return contrast([(0.0, effect) for effect in effects], positions)


Judge = Callable[[Sequence[float], Sequence[bool]], Comparison]


def peeking(margin: float, confidence: float) -> Judge:
    """Look after each run from the fifth on, at the full level, and end at the first verdict."""
    return _looking(margin, lambda repeats: (range(5, repeats + 1), confidence))


def until_decided(margin: float, confidence: float) -> Judge:
    """As `prove --until-decided`: look only as `sequential` plans it, each time at an equal share of the
    level."""

    def plan(repeats: int) -> tuple[Sequence[int], float]:
        looks = sequential.looks(repeats)
        return looks, 1 - (1 - confidence) / len(looks)

    return _looking(margin, plan)


def _looking(margin: float, plan: Callable[[int], tuple[Sequence[int], float]]) -> Judge:
    """End at the first look with a verdict. `plan`: number of repeats -> the runs of each look, and its
    confidence."""

    def judge(effects: Sequence[float], orders: Sequence[bool]) -> Comparison:
        looks, confidence = plan(len(effects))
        for runs in looks:
            first = mean(effects[:runs], orders[:runs])
            found = compare(first, margin=margin, confidence=confidence)
            if found.verdict not in OPEN:
                break
        return found

    return judge


def correlated(
    shape: tuple[int, ...], deviation: float, correlation: float, generator: np.random.Generator
) -> Floats:
    """AR(1) noise along the last axis, with the same deviation everywhere."""
    shocks = generator.normal(0, deviation, shape)
    shocks[..., 1:] *= math.sqrt(1 - correlation**2)
    for place in range(1, shape[-1]):
        shocks[..., place] += correlation * shocks[..., place - 1]
    return shocks


def _window_noise(runs: int, blocks: int, generator: np.random.Generator, machine: Machine) -> Floats:
    """Log times of one arm's windows about 0: AR(1) within a run, independent between runs, with spikes."""
    shocks = correlated((runs, blocks), machine.window_deviation, machine.window_correlation, generator)
    struck = generator.random((runs, blocks)) < machine.spike_probability
    height = generator.uniform(machine.spike_least, machine.spike_most, (runs, blocks))
    noise: Floats = shocks + struck * np.log1p(height)
    return noise


def _balanced(number: int, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Whether the contender is second, at each place: once in two, as `turns` draws it."""
    first = generator.integers(0, 2, (number + 1) // 2)
    both: npt.NDArray[np.bool_] = np.stack([first, 1 - first], axis=1).ravel()[:number].astype(bool)
    return both


def _places(contender_second: npt.NDArray[np.bool_], *, paired: bool) -> Floats:
    """The time of each arm's windows in the study, from 0 to 1, of shape (arm, run, block)."""
    runs, blocks = contender_second.shape
    block = np.arange(runs * blocks).reshape(runs, blocks)
    if paired:
        order = np.stack([2 * block + ~contender_second, 2 * block + contender_second])
    else:
        order = np.stack([block, block + runs * blocks])
    places: Floats = order / (2 * runs * blocks)
    return places


def _drift(places: Floats, generator: np.random.Generator, machine: Machine) -> Floats:
    """The machine's contribution to the log time at each place."""
    swing = math.log1p(generator.uniform(machine.drift_least, machine.drift_most))
    cycles = generator.uniform(0.5, machine.drift_cycles)
    phase = generator.random()
    drift: Floats = swing / 2 * np.sin(2 * math.pi * (cycles * places + phase))
    return drift
