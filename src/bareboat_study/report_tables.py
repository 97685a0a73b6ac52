"""Pure: the tables of a study for readers, and its raw samples as CSV, with all digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from bareboat.model import Phases, Record
from bareboat.model.matrix import shown
from bareboat_study import published
from bareboat_study.findings import ContrastFinding, PointFinding, StudyFindings
from bareboat_study.numbers import interval_text, quantity, with_unit
from bareboat_study.report_values import Table, as_csv

if TYPE_CHECKING:
    from bareboat_study.study_report import StudyReport

_Cells = Iterable[Sequence[object]]

# --------------------------------------------------------------------------------------------------
# Tables for readers.


def points(found: StudyFindings, contrasts: Sequence[ContrastFinding], caption: str = "") -> Table:
    """The primary metric at each point of the contrasts."""
    rows = []
    for contrast in contrasts:
        arms = f"{contrast.contender} / {contrast.baseline}"
        for each in contrast.points:
            names = [arms] * (len(contrasts) > 1 or not each.label) + [each.label] * bool(each.label)
            rows.append((": ".join(names), *_point(each)))
    head = (with_unit(found.metric, found.unit), "baseline", "contender", "ratio", "verdict")
    return Table(head=head, rows=rows, texts=(0, 4), caption=caption)


def _point(found: PointFinding) -> tuple[str, ...]:
    if found.analysis is None:
        return "", "", "", "no verdict"
    metric = found.analysis.primary
    means = (quantity(mean, metric.unit) for mean in (metric.baseline_mean, metric.contender_mean))
    return (*means, interval_text(metric, found.analysis), str(found.verdict))


def failures(found: StudyFindings) -> Table:
    rows = [
        (each.label or "none", each.arm, str(each.run), str(each.exit_code), each.reason)
        for each in found.failures
    ]
    head = ("point", "arm", "run", "exit code", "reason")
    return Table(head=head, rows=rows, texts=(0, 1, 4), caption="Failed runs, in no number")


# --------------------------------------------------------------------------------------------------
# Raw samples.


def csv_files(report: StudyReport) -> dict[str, str]:
    """File name -> CSV with all digits: the comparisons, every run, step and sample, warm-ups included, the
    scaling, the series, and the published values."""
    of_usage = sorted(
        {name for each in _every(report) if each.usage is not UNSET for name in each.usage.curves}
    )
    made = {"summary.csv": _summary(report), "runs.csv": _runs(report)}
    steps = ("block", "window_began_s", "step", "step_s")
    for name, head, rows in (
        ("steps.csv", steps, _steps),
        ("memory.csv", ("at_s", "bytes", "kind"), _memory),
        ("usage.csv", ("at_s", *of_usage), lambda record: _usage(record, of_usage)),
        ("series.csv", ("series", "x", "y"), _series),
    ):
        found = [*_of_records(report, head, rows)]
        if len(found) > 1:
            made[name] = found
    if report.found.scalings:
        made["scaling.csv"] = _scaling(report)
    files = {name: as_csv(rows) for name, rows in made.items()}
    return files | ({"published.csv": published.table(report.beside)} if report.beside else {})


def _every(report: StudyReport) -> list[Record]:
    return [record for own in report.records for record in own]


def _factors(report: StudyReport) -> list[str]:
    return [f"factor.{name}" for name in report.matrix.factors]


def _values(report: StudyReport, point: int) -> list[str]:
    return [shown(value) for value in report.matrix.points[point]]


def _summary(report: StudyReport) -> _Cells:
    yield (
        "study", "point", *_factors(report), "metric", "unit", "is_primary", "higher_is_better", "baseline",
        "contender", "baseline_geometric_mean", "contender_geometric_mean", "ratio", "low", "high",
        "confidence", "margin", "equivalence_p", "difference_p", "corrected_equivalence_p",
        "corrected_difference_p", "runs", "verdict",
    )  # fmt: skip
    for contrast in report.found.contrasts:
        for each in contrast.points:
            for metric in each.analysis.metrics if each.analysis is not None else ():
                c = metric.comparison
                verdict = each.verdict if metric.primary else ""
                corrected = each.analysis.p_values if metric.primary and each.analysis else (None, None)
                yield (
                    report.matrix.id, each.point, *_values(report, each.point), metric.name, metric.unit,
                    int(metric.primary), int(metric.higher_is_better), contrast.baseline, contrast.contender,
                    metric.baseline_mean, metric.contender_mean, c.ratio, c.low, c.high, c.confidence,
                    *_shown(*metric.tests, *corrected), c.runs, str(verdict),
                )  # fmt: skip


def _shown(*values: float | None) -> list[float | None]:
    """The values without those that are no numbers: p values of a study that goes on."""
    return [None if value is None or math.isnan(value) else value for value in values]


def _of_records(report: StudyReport, head: Sequence[str], rows_of: Callable[[Record], _Cells]) -> _Cells:
    """The rows of each record below its run and arm."""
    yield "study", "point", *_factors(report), "run", "arm", "is_warm_up", *head
    for point, own in enumerate(report.records):
        for each in sorted(own, key=lambda each: (each.run, each.position, each.arm)):
            before = (
                report.matrix.id, point, *_values(report, point), each.run, each.arm, int(each.warm_up),
            )  # fmt: skip
            for cells in rows_of(each):
                yield *before, *cells


def _runs(report: StudyReport) -> _Cells:
    phases = Phases.__struct_fields__
    results = sorted({name for each in _every(report) for name in each.results})
    totals = sorted(
        {name for each in _every(report) if each.usage is not UNSET for name in each.usage.totals}
    )
    plain = (
        "position", "started_at", "exit_code", "ended_because", "wall_s", "world_size", "samples_per_step",
        "peak_memory_bytes", "memory_kind", "load_1min", "job_id", "plan_digest", "image_digest",
    )  # fmt: skip

    def cells(each: Record) -> _Cells:
        used = each.usage.totals if each.usage is not UNSET else {}
        yield (
            *(getattr(each, name) for name in plain),
            *(getattr(each.phases, name) if each.phases else None for name in phases),
            *(each.results.get(name) for name in results),
            *(used.get(name) for name in totals),
        )

    own = (*(f"result.{name}" for name in results), *(f"usage.{name}" for name in totals))
    return _of_records(report, (*plain, *phases, *own), cells)


def _steps(record: Record) -> _Cells:
    for window in record.windows:
        for step, seconds in enumerate(window.step_s):
            yield window.block, window.began_s, step, seconds


def _memory(record: Record) -> _Cells:
    return ((sample.at_s, sample.bytes, record.memory_kind) for sample in record.memory)


def _usage(record: Record, names: Sequence[str]) -> _Cells:
    """The sampler's curves, a row for each point; the series of ten points a second are in the run's
    directory."""
    if record.usage is UNSET:
        return
    curves = record.usage.curves
    for number, at_s in enumerate(record.usage.at_s):
        yield at_s, *(curves[name][number] if name in curves else None for name in names)


def _series(record: Record) -> _Cells:
    for name, curve in (record.series if record.series is not UNSET else {}).items():
        for x, y in curve:
            yield name, x, y


def _scaling(report: StudyReport) -> _Cells:
    numbers = (
        "workers", "runs", "speed_up", "low", "high", "efficiency", "efficiency_low", "efficiency_high",
    )  # fmt: skip
    yield "study", "arm", "at", *numbers
    for found in report.found.scalings:
        for each in found.speed_ups:
            yield report.matrix.id, found.arm, found.at, *(getattr(each, name) for name in numbers)
