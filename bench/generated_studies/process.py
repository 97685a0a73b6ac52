"""The process that makes a study: the seconds of each training step of both arms, and their true ratio.

Nothing here knows how a study is analysed. Every random factor either has the same distribution in both arms,
and is independent of them, or is an effect of the contender whose mean is known. So the ratio of the expected
total times is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BASELINE, CONTENDER = 0, 1
#: The median of an import, in seconds.
IMPORT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How the time of a step varies in both arms. Deviations are of the natural log: 0.03 is about 3 %.

    `process_deviation`: of an arm's processes, for a whole run. `window_deviation`, `step_deviation`:
    independent noise. `speed_deviation`, `speed_correlation`: the machine's speed, AR(1) from one window to
    the next in time, whichever arm has it. `drift`: how much slower the machine is at the end of the study.
    `speed_changes`: the mean number of sudden changes in a study between full speed and a speed that is lower
    by `change_least` to `change_most`. `steal_share`: the share of the windows that lose time to the
    hypervisor, `steal_least` of the window or more, with a Pareto tail of index `steal_index`, at most
    `steal_most`. `wait`: the mean wait for a processor, relative to the processor time, as the kernel counts.
    """

    step_s: float = 0.025
    process_deviation: float = 0.004
    window_deviation: float = 0.01
    step_deviation: float = 0.03
    speed_deviation: float = 0.0
    speed_correlation: float = 0.95
    drift: float = 0.0
    speed_changes: float = 0.0
    change_least: float = 0.10
    change_most: float = 0.20
    steal_share: float = 0.0
    steal_least: float = 0.05
    steal_index: float = 1.5
    steal_most: float = 10.0
    wait: float = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What is slower in the contender alone.

    `ratio`: its speed relative to the baseline's, in every step. `stall_share`: the share of its windows that
    take `stall_factor` times as long without using a processor; they lie in a share `stall_runs` of the runs.
    `settle_factor`: how many times longer its settling steps take. `wait`: its additional mean wait for a
    processor, relative to its processor time. `copy_deviation`: of its speed between studies, because its
    files lie elsewhere in memory in each study; the same for all runs of one study.
    """

    ratio: float = 1.0
    stall_share: float = 0.0
    stall_factor: float = 1.0
    stall_runs: float = 1.0
    settle_factor: float = 1.0
    wait: float = 0.0
    copy_deviation: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of the arms, and what it costs the arm that starts second, whichever that is.

    `contender_first`: the share of the runs that the contender starts, exactly; None: each run is drawn with
    equal chances. `import_factor`: of the time of the second arm's import. `blocks`, `factor`: its first
    windows take so many times as long.
    """

    contender_first: float | None = None
    import_factor: float = 1.0
    blocks: int = 0
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a study. A window has `steps` steps, the first `settle` of them for settling."""

    runs: int = 12
    blocks: int = 24
    steps: int = 8
    settle: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """All of these together."""

    machine: Machine = field(default_factory=Machine)
    effects: Effects = field(default_factory=Effects)
    order: Order = field(default_factory=Order)
    size: Size = field(default_factory=Size)

    @property
    def true_ratio(self) -> float:
        """Expected total time of the baseline's steps over the contender's, settling steps included, for a
        copy of median speed: the ratio of the throughputs. The order has no part in it: over balanced orders
        it costs both arms the same."""
        effects, size = self.effects, self.size
        stalled = effects.stall_share * (effects.stall_factor - 1)
        settling = 1 + (effects.settle_factor - 1) * size.settle / size.steps
        slower = settling * (1 + self.machine.wait + effects.wait + stalled) / (1 + self.machine.wait)
        return effects.ratio / slower


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A drawn study. `step_s`: seconds, of shape (run, block, arm, step); `cpu_s`, `wait_s`: of the steps of
    a window after those to settle, for one thread, of shape (run, block, arm). `places`: the place in time of
    each window within its run, of shape (run, block, arm). `second`: whether an arm starts second, of shape
    (run, arm). `import_s`: of shape (run, arm). `true_ratio`: with the study's own copy."""

    step_s: Floats
    cpu_s: Floats
    wait_s: Floats
    places: NDArray[np.int64]
    second: Bools
    import_s: Floats
    true_ratio: float


def draw(process: Process, generator: np.random.Generator, *, redraws: bool = False) -> Drawn:
    """One study of runs 1, 2, …; the warm-up is not drawn.

    `redraws`: the design of the study redraws how the copy lies in memory before each run, so that each run
    has a deviation of its own, and the true ratio is that of a copy of median speed. Otherwise all runs have
    the same, and the true ratio is that of this copy."""
    size, machine, effects = process.size, process.machine, process.effects
    shape = (size.runs, size.blocks, 2)
    second = _second(process, generator)
    places = _places(size, generator)
    copy = generator.normal(0, effects.copy_deviation, size.runs if redraws else 1)[:, None]

    log_cpu = _noise(machine.process_deviation, (size.runs, 1, 2), generator)
    log_cpu = log_cpu + _noise(machine.window_deviation, shape, generator)
    run_starts = np.arange(size.runs)[:, None, None] * (2 * size.blocks)
    log_cpu = log_cpu + _log_speed(machine, 2 * size.blocks * size.runs, generator)[run_starts + places]
    log_cpu[..., CONTENDER] -= math.log(effects.ratio) + copy
    log_cpu[:, : process.order.blocks] += second[:, None, :] * math.log(process.order.factor)
    cpu = np.exp(log_cpu) * (1 + _steal(machine, shape, generator))

    step = cpu[..., None] * np.exp(_noise(machine.step_deviation, (*shape, size.steps), generator))
    step *= machine.step_s
    step[:, :, CONTENDER, : size.settle] *= effects.settle_factor
    waits = generator.exponential(machine.wait, shape)
    waits[..., CONTENDER] += generator.exponential(effects.wait, shape[:2])
    idle = np.zeros(shape)
    idle[..., CONTENDER] = (effects.stall_factor - 1) * _stalled(effects, size, generator)

    counted = step[..., size.settle :].sum(axis=-1)
    imports = np.exp(_noise(0.02, (size.runs, 2), generator)) * IMPORT_S
    return Drawn(
        step_s=step * (1 + waits + idle)[..., None],
        cpu_s=counted,
        wait_s=counted * waits,
        places=places,
        second=second,
        import_s=imports * np.where(second, process.order.import_factor, 1.0),
        true_ratio=process.true_ratio * (1.0 if redraws else math.exp(copy.item())),
    )


def _noise(deviation: float, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    return generator.normal(0, deviation, shape)


def _second(process: Process, generator: np.random.Generator) -> Bools:
    """Whether each arm starts second."""
    runs, share = process.size.runs, process.order.contender_first
    if share is None:
        contender_first = generator.random(runs) < 0.5
    else:
        contender_first = generator.permutation(np.arange(runs) < round(share * runs))
    return np.stack([contender_first, ~contender_first], axis=1)


def _places(size: Size, generator: np.random.Generator) -> NDArray[np.int64]:
    """The arms take turns; which of them is first is drawn for each block."""
    later = generator.integers(0, 2, (size.runs, size.blocks))
    block = 2 * np.arange(size.blocks)[None, :]
    return np.stack([block + later, block + 1 - later], axis=2)


def _log_speed(machine: Machine, windows: int, generator: np.random.Generator) -> Floats:
    """By how much the machine slows each window down, in the order of time."""
    log_time = np.linspace(0.0, math.log1p(machine.drift), windows)
    if machine.speed_deviation:
        shocks = generator.normal(0, machine.speed_deviation, windows)
        shocks[1:] *= math.sqrt(1 - machine.speed_correlation**2)
        for window in range(1, windows):
            shocks[window] += machine.speed_correlation * shocks[window - 1]
        log_time += shocks
    changes = np.sort(generator.integers(0, windows, generator.poisson(machine.speed_changes)))
    for begin, end in zip(changes[::2], [*changes[1::2], windows], strict=False):
        log_time[begin:end] -= math.log1p(-generator.uniform(machine.change_least, machine.change_most))
    return log_time


def _steal(machine: Machine, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    """The time that the hypervisor takes from each window, relative to the window."""
    struck = generator.random(shape) < machine.steal_share
    lost = machine.steal_least * (1 + generator.pareto(machine.steal_index, shape))
    return np.where(struck, np.minimum(lost, machine.steal_most), 0.0)


def _stalled(effects: Effects, size: Size, generator: np.random.Generator) -> Bools:
    """The contender's windows that stall."""
    struck: Bools = generator.random((size.runs, 1)) < effects.stall_runs
    share = effects.stall_share / effects.stall_runs
    stalled: Bools = generator.random((size.runs, size.blocks)) < share
    return struck & stalled
