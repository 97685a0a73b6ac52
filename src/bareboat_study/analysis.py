"""Records -> an analysis, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bareboat.model import Record, Study, Window
from bareboat_base.errors import UsageError
from bareboat_study import quantities, verdicts, waiting
from bareboat_study.statistics import Comparison, Verdict, compare, geometric_mean, kept_blocks, run_effect

#: The metric that is the throughput before the waits for a processor were taken out of it.
WITH_WAITS = "throughput, with waits"

#: The records of one measured run, baseline first.
Pair = tuple[Record, Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One quantity in both arms: a value per measured run, and the comparison of the pairs.

    `baseline[i]`, `contender[i]` and `effects[i]`, the log of their ratio, come from the same run. The ratio
    is contender over baseline. `blocks[i]`: the log ratios of the run's blocks, of which its effect was made.
    `baseline_mean` and `contender_mean`: geometric means, so that their quotient is the comparison's ratio.
    The study's verdict is that of the `primary` metric; the others are secondary metrics.
    """

    name: str
    unit: str
    higher_is_better: bool
    primary: bool
    baseline: tuple[float, ...]
    contender: tuple[float, ...]
    baseline_mean: float
    contender_mean: float
    effects: tuple[float, ...]
    comparison: Comparison
    blocks: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A result that every measured run of an arm had to reach, such as a test accuracy. `lowest`: of the
    finite values; `not_numbers`: the number of runs without a finite value."""

    name: str
    least: float
    arm: str
    lowest: float | None
    reached: bool
    not_numbers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A result that is not finite at the end of training, in this many measured runs of each arm: baseline,
    contender. `step`: the earliest step with it; 0 where the meter did not report it during training."""

    result: str
    runs: tuple[int, int]
    of: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What several comparisons make of the primary metric's verdict (Holm)."""

    comparisons: int
    verdict: Verdict
    equivalence_p: float
    difference_p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The analysis of a study's records. `pairs`: the measured runs, of which every number is made.
    `warnings`: what makes the verdict doubtful. `corrected`: one of several comparisons."""

    study: str
    pairs: tuple[Pair, ...]
    metrics: tuple[Metric, ...]
    goals: tuple[Goal, ...]
    sentence: str
    notes: tuple[str, ...]
    diverged: tuple[Divergence, ...] = ()
    warnings: tuple[str, ...] = ()
    corrected: Correction | None = None

    @property
    def verdict(self) -> Verdict:
        """That of the study. A training that diverged is never equivalent."""
        return self.verdict_of(self.primary)

    def verdict_of(self, metric: Metric) -> Verdict:
        """That of a metric; that of the primary one is the study's."""
        if metric.primary and self.diverged:
            return Verdict.DIVERGED
        if metric.primary and self.corrected is not None:
            return self.corrected.verdict
        return metric.comparison.verdict

    @property
    def word(self) -> str:
        """The verdict in a few words."""
        single = self.primary.comparison
        return verdicts.word(single) if self.verdict is single.verdict else self.verdict.value

    @property
    def text(self) -> str:
        """The sentence, and what makes it doubtful."""
        return ". ".join([self.sentence, *self.warnings])

    @property
    def primary(self) -> Metric:
        return next(metric for metric in self.metrics if metric.primary)


def analyse(study: Study, records: Sequence[Record]) -> Analysis:
    """Compare the arms. Warm-ups and runs without both arms are excluded.

    Raises UsageError with fewer than two complete runs.
    """
    pairs = measured_pairs(study, records)
    if len(pairs) < 2:
        raise UsageError(
            f"study {study.id} has {len(pairs)} complete run{'' if len(pairs) == 1 else 's'}; "
            "a comparison requires at least 2",
            remedy=f"bareboat prove --resume {study.id}",
        )
    metered = all(record.windows for pair in pairs for record in pair)
    metrics, slope = _metered(study, pairs) if metered else ([], 0.0)
    for name, unit, value in quantities.of_runs(metered):
        metrics += _metric(study, name, unit, pairs, value, primary=not metrics)
    goals = tuple(
        _goal(name, least, study.arms[index].name, [pair[index] for pair in pairs])
        for name, least in sorted(study.job.prove.goals.items())
        for index in (0, 1)
    )
    primary = metrics[0]
    diverged = tuple(_divergences(pairs))
    return Analysis(
        study=study.id,
        pairs=tuple(pairs),
        metrics=tuple(metrics),
        goals=goals,
        sentence=outcome(study, primary, diverged),
        notes=tuple(_notes(study, metered, slope)),
        diverged=diverged,
        warnings=tuple(_warnings(study, pairs)),
    )


def measured_pairs(study: Study, records: Sequence[Record]) -> list[Pair]:
    """(baseline, contender) of every measured run that both arms ended with exit code 0, in their order."""
    ended_well = (each for each in records if not each.warm_up and each.exit_code == 0)
    found = {(record.run, record.arm): record for record in ended_well}
    baseline, contender = (arm.name for arm in study.arms)
    return [
        (found[run, baseline], found[run, contender])
        for run in sorted({run for run, _ in found})
        if (run, baseline) in found and (run, contender) in found
    ]


def mean_step_s(window: Window) -> float:
    """Mean seconds of a window's steps, those to settle left out where others are left."""
    kept = window.step_s[window.settle :] or window.step_s
    return sum(kept) / len(kept)


def block_log_ratios(pair: Pair, step_s: Callable[[Window], float] = mean_step_s) -> list[float]:
    """log(throughput of contender / baseline) for each block of a run that both arms completed. `step_s`: the
    seconds of a window's step."""
    steps = [{window.block: step_s(window) for window in record.windows} for record in pair]
    samples = [record.samples_per_step or 1.0 for record in pair]
    return [
        math.log(steps[0][block] / steps[1][block] * (samples[1] / samples[0]))
        for block in sorted(steps[0].keys() & steps[1].keys())
    ]


def _metered(study: Study, pairs: Sequence[Pair]) -> tuple[list[Metric], float]:
    """The metrics of the windows, the primary one first, and the slope by which waits were taken out of it; 0
    where they were not."""
    if not waiting.is_counted(pairs):
        return [_throughput(study, pairs, "throughput", mean_step_s)], 0.0
    metrics = [_cpu_time(study, pairs)]
    slope = _slope(pairs) if waiting.may_be_removed(pairs) else 0.0
    if not slope:
        return [_throughput(study, pairs, "throughput", mean_step_s), *metrics], 0.0
    windows = [window for pair in pairs for record in pair for window in record.windows]
    typical = math.fsum(map(waiting.slowdown, windows)) / len(windows)

    def without_waits(window: Window) -> float:
        return waiting.without(mean_step_s(window), window, slope, typical)

    timed = _throughput(study, pairs, WITH_WAITS, mean_step_s)
    return [
        _throughput(study, pairs, "throughput", without_waits),
        replace(timed, primary=False),
        *metrics,
    ], slope


def _slope(pairs: Sequence[Pair]) -> float:
    shared = [{w.block for w in pair[0].windows} & {w.block for w in pair[1].windows} for pair in pairs]
    waits = [[{w.block: waiting.slowdown(w) for w in record.windows} for record in pair] for pair in pairs]
    return waiting.slope(
        [block_log_ratios(pair) for pair in pairs],
        [
            [first[block] - second[block] for block in sorted(blocks)]
            for (first, second), blocks in zip(waits, shared, strict=True)
        ],
    )


def _cpu_time(study: Study, pairs: Sequence[Pair]) -> Metric:
    """The processor time of all ranks in a step, per sample where the arms' steps have different samples."""
    found = _throughput(study, pairs, "processor time", waiting.cpu_step_s)
    baseline, contender = (tuple(1 / value for value in arm) for arm in (found.baseline, found.contender))
    effects = tuple(-effect for effect in found.effects)
    return replace(
        found,
        unit="s/sample" if found.unit == "samples/s" else "s/step",
        higher_is_better=False,
        primary=False,
        baseline=baseline,
        contender=contender,
        baseline_mean=1 / found.baseline_mean,
        contender_mean=1 / found.contender_mean,
        effects=effects,
        comparison=_compare(study, effects),
        blocks=tuple(tuple(-ratio for ratio in run) for run in found.blocks),
    )


def _throughput(study: Study, pairs: Sequence[Pair], name: str, step_s: Callable[[Window], float]) -> Metric:
    values = [_speeds(pair, step_s) for pair in pairs]
    baseline = tuple(speeds[0] for speeds in values)
    contender = tuple(speeds[1] for speeds in values)
    blocks = tuple(tuple(block_log_ratios(pair, step_s)) for pair in pairs)
    effects = tuple(map(run_effect, blocks))
    counted = any((record.samples_per_step or 1.0) != 1.0 for pair in pairs for record in pair)
    return Metric(
        name=name,
        unit="samples/s" if counted else "steps/s",
        higher_is_better=True,
        primary=True,
        baseline=baseline,
        contender=contender,
        baseline_mean=geometric_mean(baseline),
        contender_mean=geometric_mean(contender),
        effects=effects,
        comparison=_compare(study, effects),
        blocks=blocks,
    )


def _speeds(pair: Pair, step_s: Callable[[Window], float]) -> tuple[float, float]:
    """The throughput of a run's arms: the geometric mean over the blocks of which the run's effect is made,
    so that the logarithm of their quotient is that effect."""
    steps = [{window.block: step_s(window) for window in record.windows} for record in pair]
    shared = sorted(steps[0].keys() & steps[1].keys())
    kept = [shared[place] for place in kept_blocks(block_log_ratios(pair, step_s))]
    if not kept:
        raise UsageError(
            "a run without a complete block has no effect to measure", remedy="train for more steps"
        )
    first, second = (
        (record.samples_per_step or 1.0) / geometric_mean([arm[block] for block in kept])
        for record, arm in zip(pair, steps, strict=True)
    )
    return first, second


def _metric(
    study: Study,
    name: str,
    unit: str,
    pairs: Sequence[Pair],
    value: Callable[[Record], float],
    *,
    primary: bool,
) -> list[Metric]:
    """The metric, or nothing when it was not measured (for example in a run too short for samples)."""
    baseline = tuple(value(pair[0]) for pair in pairs)
    contender = tuple(value(pair[1]) for pair in pairs)
    if min(baseline + contender) <= 0:
        return []
    effects = tuple(math.log(b / a) for a, b in zip(baseline, contender, strict=True))
    return [
        Metric(
            name=name,
            unit=unit,
            higher_is_better=False,
            primary=primary,
            baseline=baseline,
            contender=contender,
            baseline_mean=geometric_mean(baseline),
            contender_mean=geometric_mean(contender),
            effects=effects,
            comparison=_compare(study, effects),
        )
    ]


def _compare(study: Study, log_ratios: Sequence[float]) -> Comparison:
    prove = study.job.prove
    return compare(log_ratios, margin=prove.margin, confidence=prove.confidence)


def _goal(name: str, least: float, arm: str, records: Sequence[Record]) -> Goal:
    values = [float(record.results[name]) for record in records if name in record.results]
    known = [value for value in values if math.isfinite(value)]
    lowest = min(known) if known else None
    reached = len(known) == len(records) and lowest is not None and lowest >= least
    return Goal(
        name=name,
        least=least,
        arm=arm,
        lowest=lowest,
        reached=reached,
        not_numbers=len(values) - len(known),
    )


def _divergences(pairs: Sequence[Pair]) -> Iterator[Divergence]:
    for name in sorted({name for pair in pairs for record in pair for name in record.results}):
        arms = [
            [pair[arm] for pair in pairs if not math.isfinite(float(pair[arm].results.get(name, 0)))]
            for arm in (0, 1)
        ]
        found = [*arms[0], *arms[1]]
        if found:
            yield Divergence(
                result=name,
                runs=(len(arms[0]), len(arms[1])),
                of=len(pairs),
                step=min((record.diverged.get(name, 0) for record in found), default=0),
            )


def outcome(study: Study, metric: Metric, diverged: Sequence[Divergence]) -> str:
    """The verdict, after the divergence of a training that diverged."""
    if not diverged:
        return _sentence(study, metric)
    said = "; ".join(divergence_text(study, each) for each in diverged)
    return f"the training diverged: {said}. Its {metric.name} alone: {_sentence(study, metric)}"


def divergence_text(study: Study, found: Divergence) -> str:
    since = f" from step {found.step:,}" if found.step else ""
    arms = [
        f"{runs} of {found.of} runs of {arm.name}" for runs, arm in zip(found.runs, study.arms, strict=True)
    ]
    if found.runs[0] == found.runs[1]:
        where = f"{found.runs[0]} of {found.of} runs of both arms"
    else:
        where = " and ".join(arms)
    return f"{found.result}: not finite{since} in {where}"


def _sentence(study: Study, metric: Metric) -> str:
    baseline, contender = (arm.name for arm in study.arms)
    return verdicts.sentence(metric.comparison, metric=metric.name, baseline=baseline, contender=contender)


def _warnings(study: Study, pairs: Sequence[Pair]) -> Iterator[str]:
    samples = [sorted({pair[arm].samples_per_step or 1.0 for pair in pairs}) for arm in (0, 1)]
    if samples[0] != samples[1]:
        of = [", ".join(f"{number:g}" for number in numbers) for numbers in samples]
        yield (
            f"The arms do not do the same work: {study.arms[0].name} trains {of[0]} samples per step, "
            f"{study.arms[1].name} {of[1]}; the throughput counts the samples of each"
        )
    busy = max(record.load_1min for pair in pairs for record in pair)
    expected = study.job.topology.world_size + 1
    if busy > max(expected, study.site.cpus) * 1.5:
        yield (
            f"The machine was busy with other work: its load reached {busy:.1f} with {study.site.cpus} "
            "cores; repeat the study on an idle machine"
        )


def _notes(study: Study, metered: bool, slope: float) -> list[str]:
    notes = [
        "The unit of inference is the run: a fresh pair of processes. "
        "The warm-up run is kept in the records and excluded from every number.",
        "Only the primary metric gives the verdict. The others are secondary metrics, each at the same "
        "confidence; among several, one may look different by chance.",
        "The values of the arms are geometric means over the runs, so that their quotient is the ratio.",
    ]
    if not metered:
        notes.append(
            "The command has no meter: wall time and memory of whole runs are compared, in adjacent pairs."
        )
    if slope:
        notes.append(
            "The time that the arms waited for a processor is taken out of the throughput, by a regression "
            f"within the runs (slope {slope:.2f}); with waits, it is a metric of its own."
        )
    if metered and study.arms[0].engine == study.arms[1].engine:
        notes.append("Both arms are the same: this study measures the method itself.")
    return notes
