"""Simulated studies with a known true ratio: how often is the analysis wrong?

They go through the same `run_effect` and `compare` as measured ones. Pure: a seed in, rates out.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from bareboat_base.errors import UsageError
from bareboat_study import waiting
from bareboat_study.statistics import Comparison, Verdict, compare, run_effect

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How the step time varies. Deviations are of the natural log: 0.03 is about 3 %.

    `run_deviation`: of a run's log ratio, shared by all its blocks (memory layout, page placement).
    `window_deviation`, `window_correlation`: noise of an arm's windows, AR(1) from one to its next.
    `drift_least`, `drift_most`: the swing, from fastest to slowest, that both arms share; it goes through
    up to `drift_cycles` slow waves in a study. `spike_probability`: that a window is struck by a spike, which
    multiplies its time by 1 + `spike_least` to 1 + `spike_most`. `wait`: the mean of the log by which a
    window is longer because its arm waited for a processor; exponentially distributed, and counted by the
    kernel.
    """

    run_deviation: float = 0.007
    window_deviation: float = 0.03
    window_correlation: float = 0.5
    drift_least: float = 0.10
    drift_most: float = 0.20
    drift_cycles: float = 2.0
    spike_probability: float = 0.02
    spike_least: float = 0.2
    spike_most: float = 1.0
    wait: float = 0.0


#: Other work requires twice the number of processors.
BUSY = Machine(wait=0.7)


class Method(StrEnum):
    """How a study is run and analysed: Bareboat's, on an idle and on a busy machine, and others for
    comparison."""

    PAIRED = "arms take turns, one value per run"
    REMOVED = "the same on a busy machine, waits removed"
    LEFT = "the same on a busy machine, waits left in"
    POOLED = "arms take turns, every block counted as independent"
    UNPAIRED = "all of one arm, then all of the other, one value per run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Results of `studies` simulated studies. Shares are between 0 and 1; the first three add up to 1.

    `coverage` is the share whose interval holds the true ratio; `half_width` is the median half width of
    the interval on the log scale, so 0.01 is about 1 %.
    """

    true_ratio: float
    studies: int
    equivalent: float
    different: float
    not_enough: float
    coverage: float
    half_width: float


def block_waits(*, runs: int, blocks: int, generator: np.random.Generator, machine: Machine) -> Floats:
    """The difference of the logs, contender's minus baseline's, by which the windows of every block are
    longer for their waits, of shape (runs, blocks)."""
    waits = generator.exponential(machine.wait, (2, runs, blocks))
    differences: Floats = waits[1] - waits[0]
    return differences


def block_log_ratios(
    true_ratio: float,
    *,
    runs: int,
    blocks: int,
    generator: np.random.Generator,
    machine: Machine | None = None,
    paired: bool = True,
) -> Floats:
    """One study: the log(contender / baseline) of every block, of shape (runs, blocks).

    Paired: the two windows of a block follow each other in random order. Not paired: the baseline has
    the first half of the time and the contender the second; block i of run j then sets equal places in
    the two halves against each other.

    Raises UsageError for a ratio that is not positive, or no runs or blocks.
    """
    if not (true_ratio > 0 and math.isfinite(true_ratio)) or runs < 1 or blocks < 1:
        raise UsageError(
            f"a study of ratio {true_ratio} with {runs} runs of {blocks} blocks cannot be simulated",
            remedy="give a positive ratio, and at least one run and one block",
        )
    machine = machine or Machine()
    log_times = np.stack([_window_noise(runs, blocks, generator, machine) for _arm in range(2)])
    log_times[1] += math.log(true_ratio) + generator.normal(0, machine.run_deviation, (runs, 1))
    log_times += _drift(_places(runs, blocks, generator, paired=paired), generator, machine)
    ratios: Floats = log_times[1] - log_times[0]
    return ratios


def error_rates(
    true_ratio: float,
    *,
    studies: int,
    runs: int,
    blocks: int,
    margin: float,
    confidence: float,
    seed: int,
    method: Method = Method.PAIRED,
    machine: Machine | None = None,
) -> Rates:
    """Simulate `studies` studies of `runs` runs of `blocks` blocks whose true ratio is known.

    Equal arguments give equal rates. Raises UsageError as `block_log_ratios` and `compare` do, and when
    there are no studies.
    """
    if studies < 1:
        raise UsageError(
            f"error rates need at least one study, not {studies}", remedy="simulate at least one study"
        )
    if machine is None and method in (Method.REMOVED, Method.LEFT):
        machine = BUSY
    generator = np.random.default_rng(seed)
    said: list[Comparison] = []
    for _study in range(studies):
        ratios = block_log_ratios(
            true_ratio,
            runs=runs,
            blocks=blocks,
            generator=generator,
            machine=machine,
            paired=method is not Method.UNPAIRED,
        )
        if machine is not None and machine.wait > 0:
            waits = block_waits(runs=runs, blocks=blocks, generator=generator, machine=machine)
            ratios = ratios + waits
            if method is Method.REMOVED:
                ratios = ratios - waiting.slope(ratios.tolist(), waits.tolist()) * waits
        values = (
            ratios.ravel().tolist()
            if method is Method.POOLED
            else [run_effect(run) for run in ratios.tolist()]
        )
        said.append(compare(values, margin=margin, confidence=confidence))
    verdicts = Counter(comparison.verdict for comparison in said)
    return Rates(
        true_ratio=true_ratio,
        studies=studies,
        equivalent=verdicts[Verdict.EQUIVALENT] / studies,
        different=verdicts[Verdict.DIFFERENT] / studies,
        not_enough=verdicts[Verdict.NOT_ENOUGH] / studies,
        coverage=sum(c.low <= true_ratio <= c.high for c in said) / studies,
        half_width=float(np.median([math.log(c.high / c.low) / 2 for c in said])),
    )


def _window_noise(runs: int, blocks: int, generator: np.random.Generator, machine: Machine) -> Floats:
    """Log times of one arm's windows about 0: AR(1) within a run, independent between runs, with spikes."""
    shocks = generator.normal(0, machine.window_deviation, (runs, blocks))
    # Only the first shock keeps its size, so that every window has the stated deviation.
    shocks[:, 1:] *= math.sqrt(1 - machine.window_correlation**2)
    for block in range(1, blocks):
        shocks[:, block] += machine.window_correlation * shocks[:, block - 1]
    struck = generator.random((runs, blocks)) < machine.spike_probability
    height = generator.uniform(machine.spike_least, machine.spike_most, (runs, blocks))
    noise: Floats = shocks + struck * np.log1p(height)
    return noise


def _places(runs: int, blocks: int, generator: np.random.Generator, *, paired: bool) -> Floats:
    """The time of each arm's windows in the study, from 0 to 1, of shape (arm, run, block)."""
    block = np.arange(runs * blocks).reshape(runs, blocks)
    if paired:
        second = generator.integers(0, 2, (runs, blocks))
        order = np.stack([2 * block + second, 2 * block + 1 - second])
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
