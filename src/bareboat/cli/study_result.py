"""The results of a study of several arms, points or metrics: as text, JSON, and files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console, report_export
from bareboat.cli.common import Context
from bareboat.cli.report_export import Request
from bareboat.model import Matrix
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat_study.analysis import Analysis
    from bareboat_study.findings import StudyFindings
    from bareboat_study.report_matrix import StudyReport


def run(context: Context, runs: Sequence[str], request: Request) -> int:
    """Report one study from its records."""
    from bareboat.cli.libraries import check_library
    from bareboat_study import matrix

    if len(runs) > 1:
        raise UsageError(
            "a study of several arms or points can be reported with one other such study",
            remedy=f"bareboat report {runs[0]}   # alone",
        )
    check_library()
    return _report(context, _shown(context, matrix.read(context.store, runs[0])), request)


def report(context: Context, found: Matrix, output: Path | None) -> int:
    """Analyse a study that was measured and show the results. Exit with 1 where a point has too few complete
    runs."""
    from bareboat_study import listing

    page = None if output is None else str(output)
    shown = _shown(context, found)
    listing.keep_verdict(context.store, shown.found)
    return _report(context, shown, Request(("html",) if page else (), None, page, context.options.force))


def _report(context: Context, shown: StudyReport, request: Request) -> int:
    from bareboat_study import published, text

    result, study = shown.found, shown.matrix.id
    where = ""
    if request.formats and (shown.compared or request.file is None):
        where = report_export.write(context, request, _files(shown, request.formats), [study])
    if request.is_printed:
        pass
    elif context.options.json:
        console.result_json(text.values(result) | {"published": shown.beside})
    else:
        for line in study_lines(result, console.width(), console.paint if sys.stdout.isatty() else None):
            console.result(line)
        if shown.beside:
            console.result("")
            for line in published.lines(shown.beside):
                console.result(line)
        if result.missing:
            console.result(f"\n{result.missing} runs left:  bareboat prove --resume {study}")
        if where:
            console.result(f"\nreport: {where}")
    unmeasured = any(each.analysis is None for contrast in result.contrasts for each in contrast.points)
    return 1 if unmeasured and not result.missing else 0


def study_lines(
    found: StudyFindings, width: int | None, paint: Callable[[str, str], str] | None
) -> Iterator[str]:
    """The answer and the tables; at one point as of two arms, comparison by comparison."""
    from bareboat.cli import report_text
    from bareboat_study import text

    if any(len(contrast.points) > 1 for contrast in found.contrasts):
        for sentence in found.sentences:
            yield from map(console.bold, report_text.wrapped(sentence, width))
        yield from text.lines(found)
        return
    known: list[Analysis] = []
    for contrast, sentence in zip(found.contrasts, found.sentences, strict=True):
        (point,) = contrast.points
        if point.analysis is None:
            yield from report_text.wrapped(sentence, width)
            continue
        known.append(point.analysis)
        yield from report_text.comparison_lines(point.study, point.analysis, width, paint, sentence=sentence)
        yield ""
    if known:
        yield from report_text.wrapped(report_text.NOTE, width)
        yield from dict.fromkeys(line for each in known for line in report_text.goal_lines(each, width))
    yield from text.rest(found)


def _shown(context: Context, found: Matrix) -> StudyReport:
    from bareboat_study import findings, matrix, published, report_matrix

    store = context.store
    studies, records = matrix.points(store, found), matrix.read_records(store, found)
    result = findings.find(found, studies, records, missing=len(matrix.missing(store, found)))
    rows = matrix.read_published(store, found)
    return report_matrix.StudyReport(
        matrix=found,
        studies=studies,
        found=result,
        records=records,
        compared=report_matrix.compared(found, studies, result, records),
        beside=() if rows is None else published.beside(found, records, rows),
    )


def _files(shown: StudyReport, formats: Sequence[str]) -> dict[str, bytes]:
    """File name -> content."""
    from bareboat_study import forest, method, plots, report_matrix, report_matrix_tables

    texts: dict[str, str] = {}
    if "csv" in formats:
        texts |= report_matrix_tables.tables(shown)
    if "latex" in formats:
        matrix = shown.matrix
        texts["table.tex"] = report_matrix_tables.latex_table(shown)
        texts["methods.tex"] = method.latex_of_matrix(matrix, shown.studies, shown.found)
        texts["bareboat.bib"] = method.bibtex(matrix.bareboat_version, matrix.created_at, method.SOURCES)
    if "markdown" in formats:
        texts["report.md"] = report_matrix_tables.markdown_report(shown)
    if "html" in formats:
        texts["report.html"] = report_matrix.render(shown)
    drawn = {each.name: each for each in shown.figures}
    if len(shown.matrix.points) == 1:
        for number, (study, _, analysis) in enumerate(shown.compared, start=1):
            for each in (forest.of_metrics(study, analysis), *plots.figures(study, analysis)):
                drawn[f"{each.name}-{number}"] = each
    return report_export.as_files(texts, drawn, formats)
