"""Pure: a study's raw samples and its summary as comma-separated values, every number in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from bareboat.model import Phases, Record, Study
from bareboat_study.analysis import Analysis
from bareboat_study.report_values import as_csv


def tables(study: Study, records: Sequence[Record], analysis: Analysis) -> dict[str, str]:
    """File name -> table: the summary, and what was measured in each run, step and sample, warm-ups
    included."""
    ordered = sorted(records, key=lambda each: (each.run, each.position, each.arm))
    return {
        "summary.csv": as_csv(_summary(study, analysis)),
        "runs.csv": as_csv(_runs(ordered)),
        "steps.csv": as_csv(_steps(ordered)),
        "memory.csv": as_csv(_memory(ordered)),
        "usage.csv": as_csv(_usage(ordered)),
    }


def _summary(study: Study, analysis: Analysis) -> Iterable[Sequence[object]]:
    yield (
        "study", "metric", "unit", "is_primary", "higher_is_better", "baseline", "contender",
        "baseline_geometric_mean", "contender_geometric_mean", "ratio", "low", "high", "confidence", "margin",
        "equivalence_p", "difference_p", "runs", "verdict",
    )  # fmt: skip
    baseline, contender = (arm.name for arm in study.arms)
    for metric in analysis.metrics:
        c = metric.comparison
        yield (
            study.id, metric.name, metric.unit, int(metric.primary), int(metric.higher_is_better),
            baseline, contender, metric.baseline_mean, metric.contender_mean, c.ratio, c.low, c.high,
            c.confidence, *metric.tests, c.runs,
            analysis.word_of(metric),
        )  # fmt: skip


def _runs(records: Sequence[Record]) -> Iterable[Sequence[object]]:
    phases = Phases.__struct_fields__
    results = sorted({name for record in records for name in record.results})
    yield (
        "study", "run", "arm", "is_warm_up", "position", "started_at", "exit_code", "wall_s", "world_size",
        "samples_per_step", *phases, "peak_memory_bytes", "memory_kind", "load_1min", "plan_digest",
        "image_digest", *(f"result.{name}" for name in results),
    )  # fmt: skip
    for each in records:
        yield (
            each.study, each.run, each.arm, int(each.warm_up), each.position, each.started_at,
            each.exit_code, each.wall_s, each.world_size, each.samples_per_step,
            *(getattr(each.phases, name) if each.phases else None for name in phases),
            each.peak_memory_bytes, each.memory_kind, each.load_1min, each.plan_digest, each.image_digest,
            *(each.results.get(name) for name in results),
        )  # fmt: skip


def _steps(records: Sequence[Record]) -> Iterable[Sequence[object]]:
    yield "study", "run", "arm", "is_warm_up", "block", "window_began_s", "step", "is_settling", "step_s"
    for each in records:
        for window in each.windows:
            for step, seconds in enumerate(window.step_s):
                settles = int(step < window.settle and len(window.step_s) > window.settle)
                yield (
                    each.study, each.run, each.arm, int(each.warm_up), window.block, window.began_s, step,
                    settles, seconds,
                )  # fmt: skip


def _memory(records: Sequence[Record]) -> Iterable[Sequence[object]]:
    yield "study", "run", "arm", "is_warm_up", "at_s", "bytes", "kind"
    for each in records:
        for sample in each.memory:
            yield (
                each.study, each.run, each.arm, int(each.warm_up), sample.at_s, sample.bytes,
                each.memory_kind,
            )  # fmt: skip


def _usage(records: Sequence[Record]) -> Iterable[Sequence[object]]:
    """The sampler's curves, a row for each point; the series of ten points a second are in the run's
    directory."""
    names = sorted({name for each in records if each.usage is not UNSET for name in each.usage.curves})
    yield "study", "run", "arm", "is_warm_up", "at_s", *names
    for each in records:
        if each.usage is UNSET:
            continue
        for number, at_s in enumerate(each.usage.at_s):
            values = (
                each.usage.curves[name][number] if name in each.usage.curves else None for name in names
            )
            yield each.study, each.run, each.arm, int(each.warm_up), at_s, *values
