"""Records -> an analysis, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bareboat import registry
from bareboat.model import Record, Study
from bareboat_base.errors import UsageError
from bareboat_base.printable import counted
from bareboat_study import (
    arm_differences,
    layouts,
    measures,
    quantities,
    sequential,
    validity,
    verdicts,
    windows,
    witness,
)
from bareboat_study.measures import Inference, Metric
from bareboat_study.statistics import OPEN, Comparison, Verdict
from bareboat_study.validity import Censored
from bareboat_study.windows import Pair, Run


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


@dataclass(frozen=True, slots=True)
class Correction:
    """What several comparisons make of the primary metric's verdict (Holm)."""

    comparisons: int
    verdict: Verdict
    equivalence_p: float
    difference_p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The analysis of a study's records. `pairs`: the measured runs, of which every number is made. The
    first of the `metrics` is primary. `warnings`: what makes the verdict doubtful. `corrected`: one of
    several comparisons. `done` and `planned`: runs. `censored`: failed runs. `withheld`: why the ratio is no
    result, although the study is complete. `looks`: how often the design tests the data. `between`: the
    deviation between layouts of files in the page cache that the interval of the primary metric contains.
    `load`: the highest of a measured run where other work kept the machine busy; else 0."""

    study: str
    pairs: tuple[Pair, ...]
    metrics: tuple[Metric, ...]
    goals: tuple[Goal, ...]
    sentence: str
    notes: tuple[str, ...]
    diverged: tuple[Divergence, ...] = ()
    warnings: tuple[str, ...] = ()
    corrected: Correction | None = None
    done: int
    planned: int
    is_complete: bool
    censored: Censored | None = None
    looks: int = 1
    between: float = 0.0
    withheld: str = ""
    load: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether it is decided by runs in which other work kept the machine busy."""
        return self.load > 0 and self.verdict in (Verdict.EQUIVALENT, Verdict.DIFFERENT)

    def qualified(self, text: str) -> str:
        """The words of the verdict, and before their numbers that the machine was busy."""
        word, colon, numbers = text.partition(":")
        return word + " on a busy machine" * self.is_busy + colon + numbers

    @property
    def verdict(self) -> Verdict:
        """That of the study. A training that diverged is never equivalent, a study that is not complete has
        no verdict, and one whose arms fail differently is undecided."""
        if not self.is_complete:
            return Verdict.INCOMPLETE
        if self.diverged:
            return Verdict.DIVERGED
        found = self.comparison.verdict if self.corrected is None else self.corrected.verdict
        lost = self.fails_alone and found is Verdict.EQUIVALENT
        return Verdict.UNDECIDED if self.is_selected or self.withheld or lost else found

    @property
    def fails_alone(self) -> bool:
        """Whether the contender failed in a run in which the baseline did not, so that the others show no
        equivalence."""
        return self.censored is not None and self.censored.alone > 0

    @property
    def is_selected(self) -> bool:
        """Whether the arms differ in their failed runs, so that the others are no fair sample."""
        return self.censored is not None and self.censored.p <= validity.LEVEL

    @property
    def unusable(self) -> str:
        """Why its ratios are no result; empty where they are one."""
        if not self.is_complete:
            return "the study is incomplete"
        if self.diverged:
            return "the training diverged"
        if self.is_selected:
            return "the arms differ in their failed runs"
        return self.withheld.partition(":")[0]

    @property
    def p_values(self) -> tuple[float, float]:
        """Of equivalence and of a difference, corrected for several comparisons."""
        found = self.comparison if self.corrected is None else self.corrected
        return found.equivalence_p, found.difference_p

    def word_of(self, metric: Metric) -> str:
        """The verdict of the primary metric; empty for the others, which have none."""
        return self.verdict.value if metric.primary else ""

    @property
    def text(self) -> str:
        """The sentence, and what makes it doubtful."""
        return ". ".join([self.sentence, *self.warnings])

    @property
    def primary(self) -> Metric:
        return self.metrics[0]

    @property
    def comparison(self) -> Comparison:
        """That of the primary metric, which is the only one with tests."""
        found = self.primary.comparison
        assert isinstance(found, Comparison)
        return found


def analyse(study: Study, records: Sequence[Record], *, design: str = "") -> Analysis:
    """Compare two arms, by the study's own metrics first. Warm-ups are excluded, and runs in which any arm of
    the `records` failed, so that the ratios of all arms are made of the same runs.

    `design`: the digest of the design of the study with all of its arms, if it has more than these two.
    Raises UsageError with fewer than two complete runs.
    """
    every = measured_runs(study, records)
    design = design or validity.design_digest(study)
    if len(every) < 2:
        raise UsageError(
            f"{counted(len(every), 'complete run')}; a comparison requires at least 2",
            remedy=f"bareboat prove --resume {study.whole}",
        )
    done = validity.runs_done(study, records)
    judged = sequential.runs_to_judge(study.job.prove, done, lambda number: _at_look(study, every, number))
    is_complete = judged is not None
    runs = [run for run in every if judged is None or run[0].run <= judged]
    pairs = [(run[0], run[1]) for run in runs]
    inference = _inference(study, runs)
    declared, left_out = measures.declared(study.metrics, runs, inference)
    built_in, metered = measures.built_in(runs, inference)
    if declared:
        built_in = [measures.as_secondary(metric) for metric in built_in]
    metrics = (*declared, *built_in)
    diverged = tuple(_divergences(pairs))
    found = Analysis(
        study=study.whole,
        pairs=tuple(pairs),
        metrics=metrics,
        goals=tuple(_goals(study, pairs)),
        sentence="",
        notes=(
            *_notes(study, pairs, metered, bool(declared)),
            *_orders(pairs, metrics, inference.confidence, metered),
            *left_out,
        ),
        diverged=diverged,
        warnings=tuple(_warnings(study, records, pairs, metrics, design)),
        done=done,
        planned=judged or study.job.prove.repeats,
        is_complete=is_complete,
        censored=validity.censored(study, records),
        looks=len(sequential.planned(study.job.prove)),
        between=inference.between_of(metrics[0].effects, metrics[0].unit),
        withheld=validity.without_work(study, records)
        or (_withheld(study, pairs, metrics[0]) if metered else ""),
        load=_busy_load(study, pairs),
    )
    if not is_complete:
        found = replace(found, metrics=tuple(map(_without_tests, found.metrics)))
    warnings = (*found.warnings, *_busy(study, found))
    return replace(found, sentence=outcome(study, found), warnings=warnings)


def _withheld(study: Study, pairs: Sequence[Pair], primary: Metric) -> str:
    """Why the ratio is no result: taking turns changes it, or hides what would make the arms differ."""
    found = primary.comparison
    is_equivalent = isinstance(found, Comparison) and found.verdict is Verdict.EQUIVALENT
    return witness.withheld(study, pairs) or (witness.transient_text(study, pairs) if is_equivalent else "")


def _without_tests(metric: Metric) -> Metric:
    """The metric of a study that goes on: its p values are those of a look that the design does not have."""
    if not isinstance(metric.comparison, Comparison):
        return metric
    compared = replace(metric.comparison, equivalence_p=math.nan, difference_p=math.nan)
    return replace(metric, comparison=compared)


def _inference(study: Study, runs: Sequence[Run]) -> Inference:
    return Inference(
        margin=study.job.prove.margin,
        confidence=sequential.confidence(study.job.prove),
        positions=tuple(tuple(record.position for record in run) for run in runs),
        between=layouts.deviation(study, [(run[0], run[1]) for run in runs]),
    )


def _at_look(study: Study, every: Sequence[Run], number: int) -> Comparison | None:
    """The test of the primary metric in the first runs; None for too few that ended well."""
    runs = [run for run in every if run[0].run <= number]
    if len(runs) < 2:
        return None
    inference = _inference(study, runs)
    declared, _ = measures.declared(study.metrics, runs, inference)
    first = (declared or measures.built_in(runs, inference)[0])[0].comparison
    return first if isinstance(first, Comparison) else None


def measured_runs(study: Study, records: Sequence[Record]) -> list[Run]:
    """Every measured run that all arms ended with exit code 0, in their order: baseline, contender and the
    others, with the windows that all of them completed."""
    found = {(record.run, record.arm): record for record in validity.measured(records)}
    others = sorted({record.arm for record in records} - {arm.name for arm in study.arms})
    names = [*(arm.name for arm in study.arms), *others]
    return [
        windows.shared(tuple(found[run, name] for name in names))
        for run in sorted({run for run, _ in found})
        if all((run, name) in found for name in names)
    ]


def _goals(study: Study, pairs: Sequence[Pair]) -> Iterator[Goal]:
    for name, least in sorted(study.job.prove.goals.items()):
        for index, arm in enumerate(study.arms):
            values = [float(pair[index].results[name]) for pair in pairs if name in pair[index].results]
            known = [value for value in values if math.isfinite(value)]
            lowest = min(known, default=None)
            yield Goal(
                name=name,
                least=least,
                arm=arm.name,
                lowest=lowest,
                reached=len(known) == len(pairs) and lowest is not None and lowest >= least,
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


def outcome(study: Study, found: Analysis) -> str:
    """The verdict in a sentence; without one, why."""
    numbers = verdicts.sentence(
        found.comparison,
        metric=found.primary.name,
        baseline=study.arms[0].name,
        contender=study.arms[1].name,
        looks=found.looks,
        between=found.between,
    )
    diverged = "; ".join(divergence_text(study, each) for each in found.diverged)
    if not found.is_complete:
        text = f"incomplete, {found.done} of {found.planned} runs: no verdict"
        if found.looks > 1:
            low, high = found.comparison.low, found.comparison.high
            between = "" if found.comparison.has_too_few_runs else f": between {low:.3f} and {high:.3f}"
            text = f"not decided yet{between}, {found.done} of at most {found.planned} runs"
        return text + (f"; the training diverged: {diverged}" if diverged else "")
    if diverged:
        return f"the training diverged: {diverged}. Its {found.primary.name} alone: {numbers}"
    if found.is_selected:
        return (
            "undecided: the arms differ in their failed runs, so the others are no fair sample; "
            "find the cause of the failures, then measure a new study"
        )
    if found.withheld:
        return f"undecided: {found.withheld}"
    if found.fails_alone and found.comparison.verdict is Verdict.EQUIVALENT and found.censored is not None:
        name, failed, of = study.arms[1].name, found.censored.failed[1], found.censored.attempts[1]
        return f"undecided: {name} failed in {failed} of {of} runs; in those that ended, {numbers}"
    return found.qualified(numbers)


def divergence_text(study: Study, found: Divergence) -> str:
    since = f" from step {found.step:,}" if found.step else ""
    names = ["both arms"] if len({*found.runs}) == 1 else [arm.name for arm in study.arms]
    where = [f"{runs} of {found.of} runs of {name}" for runs, name in zip(found.runs, names, strict=False)]
    return f"{found.result}: not finite{since} in {' and '.join(where)}"


def _warnings(
    study: Study, records: Sequence[Record], pairs: Sequence[Pair], metrics: Sequence[Metric], design: str
) -> Iterator[str]:
    names = [arm.name for arm in study.arms]
    yield from _hidden(study, pairs, metrics)
    if (failed := validity.censored(study, records)) is not None:
        yield f"Runs that failed are in no number; {failed.text(names)}"
    measured = [each for each in records if not each.warm_up]
    if changed := sorted({each.run for each in measured if each.design not in ("", design)}):
        runs = ", ".join(map(str, changed[:5])) + ("…" if len(changed) > 5 else "")
        yield f"The design was changed after these runs were measured: {runs}"
    samples = [sorted({pair[arm].samples_per_step or 1.0 for pair in pairs}) for arm in (0, 1)]
    if samples[0] != samples[1]:
        of = [", ".join(f"{number:g}" for number in numbers) for numbers in samples]
        yield (
            f"The arms do not do the same work: {study.arms[0].name} trains {of[0]} samples per step, "
            f"{study.arms[1].name} {of[1]}; the throughput counts the samples of each"
        )


def _busy_load(study: Study, pairs: Sequence[Pair]) -> float:
    """The highest load of a measured run; 0 where the study's own processes may be all of it."""
    load = max(record.load_1min for pair in pairs for record in pair)
    return load if load > max(study.job.topology.world_size + 1, study.site.cpus) * 1.5 else 0.0


def _busy(study: Study, found: Analysis) -> Iterator[str]:
    """That other work kept the machine busy; of an open verdict also the remedy."""
    site = study.site
    # The load of nodes before a job is not known.
    was_busy = site.is_busy and not registry.is_queued(study.job.scheduler)
    seen = [f"was {site.load_1min:.1f} before the study"] * was_busy
    seen += [f"reached {found.load:.1f}"] * (found.load > 0)
    if seen:
        load = f"{' and '.join(seen)} with {site.cpus} cores"
        more = "; repeat the study on an idle machine" * (found.verdict in OPEN)
        yield f"The machine was busy with other work: its load {load}{more}"


def _hidden(study: Study, pairs: Sequence[Pair], metrics: Sequence[Metric]) -> Iterator[str]:
    """What only the total time shows: where it differs from a robust estimate by more than the margin."""
    known = {metric.name: metric.comparison.ratio for metric in metrics}
    total, bound = known.get(measures.THROUGHPUT), math.log1p(study.job.prove.margin)
    if total is None:
        return
    names, typical = [arm.name for arm in study.arms], known.get(measures.TYPICAL)
    if typical is not None and abs(math.log(total / typical)) > bound:
        yield (
            f"Slow windows weigh in: the ratio of the throughputs is {total:.4f}, in typical windows "
            f"{typical:.4f}; {windows.slow_text(names, pairs)}"
        )


def _orders(
    pairs: Sequence[Pair], metrics: Sequence[Metric], confidence: float, metered: bool
) -> Iterator[str]:
    """The effects of the order of the arms, which the balanced design takes out."""
    texts = []
    for metric in metrics:
        found = metric.comparison
        low, high = found.order_low, found.order_high
        if low is not None and high is not None and not low <= 1 <= high:
            texts.append(f"{found.order:.3f} [{low:.3f}, {high:.3f}] times the {metric.name}")
    if texts:
        yield (
            "The order of the starts, which is balanced and taken out of the ratios: the arm that starts "
            f"last has {'; '.join(texts)}."
        )
    turn = measures.window_order(pairs, confidence) if metered else None
    if turn is not None:
        yield (
            "The order of the windows, which is balanced: the second window of a block takes "
            f"{turn.ratio:.4f} [{turn.low:.4f}, {turn.high:.4f}] times as long as it would as the first."
        )


def _notes(study: Study, pairs: Sequence[Pair], metered: bool, declared: bool) -> Iterator[str]:
    if not metered and not declared:
        yield quantities.NO_METER
    yield (
        "The unit of inference is the run: a fresh pair of processes. "
        "The warm-up run is kept in the records and excluded from every number."
    )
    runs, level = len(pairs), 1 - study.job.prove.confidence
    yield (
        f"What {runs} runs cannot show: a stall that strikes fewer than {1 - level ** (1 / runs):.0%} of the "
        f"runs is in none of them with a probability of more than {level:.2g}."
    )
    if metered and not declared:
        yield (
            "The throughput of a run is its samples over the total time of all steps of its windows; a stall "
            "counts with its whole length."
        )
    if metered:
        yield from witness.notes(study, pairs)
    if study.written:
        yield study.written
    yield arm_differences.sentence(study)
    yield layouts.note(study, pairs)
