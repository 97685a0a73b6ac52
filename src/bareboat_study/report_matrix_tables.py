"""Pure: a study of several arms or points as CSV, LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from bareboat.model import Record
from bareboat.model.matrix import shown
from bareboat_study import method, published, report_values
from bareboat_study.findings import ContrastFinding, PointFinding
from bareboat_study.measures import Metric
from bareboat_study.numbers import digits, interval_text, percent, unit_of
from bareboat_study.report_matrix import StudyReport
from bareboat_study.report_values import as_csv, latex, markdown, markdown_table


def tables(report: StudyReport) -> dict[str, str]:
    """File name -> CSV with all digits: the comparisons, every run, the scaling, the series, and the
    published values."""
    made = {"summary.csv": as_csv(_summary(report)), "runs.csv": as_csv(_runs(report))}
    if report.found.scalings:
        made["scaling.csv"] = as_csv(_scaling(report))
    if any(metric.is_curve for metric in report.matrix.metrics):
        made["series.csv"] = as_csv(_series(report))
    if report.beside:
        made["published.csv"] = published.table(report.beside)
    return made


def _factors(report: StudyReport) -> list[str]:
    return [f"factor.{name}" for name in report.matrix.factors]


def _values(report: StudyReport, point: int) -> list[str]:
    return [shown(value) for value in report.matrix.points[point]]


def _summary(report: StudyReport) -> Iterable[Sequence[object]]:
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
                corrected = (each.equivalence_p, each.difference_p) if metric.primary else (None, None)
                yield (
                    report.matrix.id, each.point, *_values(report, each.point), metric.name, metric.unit,
                    int(metric.primary), int(metric.higher_is_better), contrast.baseline, contrast.contender,
                    metric.baseline_mean, metric.contender_mean, c.ratio, c.low, c.high, c.confidence,
                    *metric.tests, *corrected, c.runs, str(verdict),
                )  # fmt: skip


def _runs(report: StudyReport) -> Iterable[Sequence[object]]:
    every = [record for own in report.records for record in own]
    results = sorted({name for record in every for name in record.results})
    totals = sorted({name for record in every if record.usage is not UNSET for name in record.usage.totals})
    yield (
        "study", "point", *_factors(report), "run", "arm", "is_warm_up", "position", "started_at",
        "exit_code", "ended_because", "wall_s", "world_size", "peak_memory_bytes", "load_1min", "job_id",
        *(f"result.{name}" for name in results), *(f"usage.{name}" for name in totals),
    )  # fmt: skip
    for point, own in enumerate(report.records):
        for each in _ordered(own):
            used = each.usage.totals if each.usage is not UNSET else {}
            yield (
                report.matrix.id, point, *_values(report, point), each.run, each.arm, int(each.warm_up),
                each.position, each.started_at, each.exit_code, each.ended_because, each.wall_s,
                each.world_size, each.peak_memory_bytes, each.load_1min, each.job_id,
                *(each.results.get(name) for name in results), *(used.get(name) for name in totals),
            )  # fmt: skip


def _series(report: StudyReport) -> Iterable[Sequence[object]]:
    yield "study", "point", *_factors(report), "run", "arm", "is_warm_up", "series", "x", "y"
    for point, own in enumerate(report.records):
        for each in _ordered(own):
            for name, points in (each.series if each.series is not UNSET else {}).items():
                for x, y in points:
                    yield (
                        report.matrix.id, point, *_values(report, point), each.run, each.arm,
                        int(each.warm_up), name, x, y,
                    )  # fmt: skip


def _ordered(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda each: (each.run, each.position, each.arm))


def _scaling(report: StudyReport) -> Iterable[Sequence[object]]:
    yield (
        "study", "arm", "at", "workers", "runs", "speed_up", "low", "high", "efficiency", "efficiency_low",
        "efficiency_high",
    )  # fmt: skip
    for found in report.found.scalings:
        for each in found.scaling.speed_ups:
            yield (
                report.matrix.id, found.arm, found.at, each.workers, each.runs, each.speed_up, each.low,
                each.high, each.efficiency, each.efficiency_low, each.efficiency_high,
            )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# LaTeX and Markdown.


def latex_table(report: StudyReport) -> str:
    """The primary metric at every point, a group of rows for each comparison; it requires booktabs."""
    matrix = report.matrix
    return report_values.latex_table(
        "lrrrl",
        _HEAD,
        [_rows(contrast) for contrast in report.found.contrasts],
        caption=f"{latex(matrix.name)}: {' '.join(map(latex, _caption(report)))}",
        study=matrix.id,
        version=matrix.bareboat_version,
    )


def markdown_report(report: StudyReport) -> str:
    """The answer, a table for each comparison, and the notes."""
    found = report.found
    parts = [f"## {markdown(found.study)}", *map(markdown, found.sentences)]
    for contrast in found.contrasts:
        parts.append(f"### {markdown(f'{contrast.contender} / {contrast.baseline}')}")
        rows = [list(map(markdown, row)) for row in _rows(contrast)]
        parts.append(markdown_table(_HEAD, rows, texts=(0, 4)))
    parts.append(" ".join(map(markdown, _caption(report))))
    if found.notes:
        parts.append("\n".join(f"- {markdown(note)}" for note in found.notes))
    parts += ["### Method", method.of_matrix(report.matrix, report.studies, found, markdown)]
    return "\n\n".join(parts) + "\n"


_HEAD = ("Point", "Baseline", "Contender", "Ratio", "Verdict")


def _caption(report: StudyReport) -> list[str]:
    found, prove = report.found, report.matrix.prove
    unit = f" ({found.unit})" if found.unit else ""
    pairs = "; ".join(f"{each.contender} against {each.baseline}" for each in found.contrasts)
    return [
        f"{found.metric}{unit}, {pairs}.",
        "Geometric means over the runs.",
        f"Ratio: contender over baseline, with its {percent(prove.confidence)} interval.",
        f"Verdicts: margin ±{prove.margin * 100:g} %, corrected for several comparisons (Holm).",
    ]


def _rows(contrast: ContrastFinding) -> list[tuple[str, ...]]:
    rows = [_row(each) for each in contrast.points]
    if (pooled := contrast.pooled) is not None:
        ratio = f"{pooled.ratio:.4f} [{pooled.low:.4f}, {pooled.high:.4f}]"
        rows.append(("pooled", "", "", ratio, pooled.verdict or ""))
    return rows


def _row(found: PointFinding) -> tuple[str, ...]:
    if found.analysis is None:
        return (found.label, "", "", "", found.reason)
    metric: Metric = found.analysis.primary
    scale, _ = unit_of(metric)
    means = (digits(mean / scale) for mean in (metric.baseline_mean, metric.contender_mean))
    return (found.label, *means, interval_text(metric), str(found.verdict))
