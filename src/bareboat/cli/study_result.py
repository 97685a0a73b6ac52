"""The results of a study of several arms, points or metrics: as text, JSON and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.report_export import Request
from bareboat.errors import UsageError
from bareboat.files import outputs
from bareboat.model import Matrix

if TYPE_CHECKING:
    from bareboat.study.findings import StudyFindings

#: A page with more comparisons is too long to read.
_MOST_COMPARISONS = 24


def run(context: Context, runs: Sequence[str], request: Request) -> int:
    """Report one study from its records."""
    from bareboat.cli.libraries import check_library
    from bareboat.study import matrix

    if len(runs) > 1:
        raise UsageError(
            "a study of several arms or points cannot be combined with other runs",
            remedy=f"bareboat report {runs[0]}   # alone",
        )
    if set(request.formats) - {"html"} or (request.formats and request.file is None):
        raise UsageError(
            f"{runs[0]} is a study of several arms or points, which is reported as text, JSON or one page",
            remedy=f"bareboat report {runs[0]} --json, or -o report.html",
        )
    check_library()
    output = None if request.file is None else Path(request.file)
    return report(context, matrix.read(context.store, runs[0]), output)


def report(context: Context, found: Matrix, output: Path | None) -> int:
    """Analyse a study and show the results. Exit with 1 where a point has too few complete runs."""
    from bareboat.study import findings, matrix, text

    store = context.store
    result = findings.find(
        found,
        matrix.points(store, found),
        matrix.read_records(store, found),
        missing=len(matrix.missing(store, found)),
    )
    written = output is not None and _write_page(context, found, result, output)
    if context.options.json:
        console.result_json(text.values(result))
    else:
        for sentence in result.sentences:
            console.result(console.bold(sentence))
        for line in text.lines(result):
            console.result(line)
        if result.missing:
            console.result(f"\n{result.missing} runs left:  bareboat prove --resume {found.id}")
        if written:
            console.result(f"\nreport: {output}")
    unmeasured = any(each.analysis is None for contrast in result.contrasts for each in contrast.points)
    return 1 if unmeasured and not result.missing else 0


def _write_page(context: Context, found: Matrix, result: StudyFindings, output: Path) -> bool:
    """Write each comparison of the study as a section of one page."""
    from bareboat.study import findings, matrix
    from bareboat.study.report import render_report

    studies, records = (
        matrix.points(context.store, found),
        matrix.read_records(context.store, found),
    )
    sections = []
    for contrast in result.contrasts:
        for each in contrast.points:
            if each.analysis is not None:
                view, own = findings.pair_of(
                    found, contrast.contrast, studies[each.point], records[each.point]
                )
                sections.append((view, own, each.analysis))
    if not sections or len(sections) > _MOST_COMPARISONS:
        if sections:
            context.progress.note(
                f"no page: the study has {len(sections)} comparisons, a page at most {_MOST_COMPARISONS}"
            )
        return False
    outputs.write(output, render_report(sections, result).encode())
    return True
