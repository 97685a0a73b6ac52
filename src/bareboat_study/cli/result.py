"""The results of studies: as text, JSON, and files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bareboat import registry
from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.job import words_of_run
from bareboat.model import Matrix
from bareboat_base.errors import UsageError
from bareboat_base.printable import counted
from bareboat_study.cli import report_export
from bareboat_study.cli.report_export import Request

if TYPE_CHECKING:
    from bareboat_study.findings import StudyFindings
    from bareboat_study.study_report import StudyReport

#: The exit code of a study whose contender failed in a run in which the baseline did not.
FAILED_ALONE = 12


def run(context: Context, runs: Sequence[str], request: Request) -> int:
    """Report a study from its records, or the changes between two. Exit with 1 where a point has too few
    complete runs."""
    from bareboat.cli.libraries import check_library
    from bareboat_study import study_report
    from bareboat_study.cli import report_change

    if len(runs) > 2 or (len(runs) > 1 and request.formats):
        raise UsageError(
            "two studies are compared, on the terminal and by --json; every other report is of one",
            remedy=f"bareboat report {runs[0]} {' '.join(f'--{name}' for name in request.formats)}".rstrip(),
        )
    check_library()
    studies = [study_report.read(context.store, name) for name in runs]
    if len(studies) == 2:
        return report_change.run(context, studies[0], studies[1])
    code = _report(context, studies[0], request)
    if request.file is None or studies[0].compared:
        return code
    console.warn(f"bareboat: {request.file} was not written: no point has enough complete runs")
    return code or 1


def report(context: Context, found: Matrix) -> int:
    """Analyse a study that was measured and show the results. Exit with 1 where a point has too few complete
    runs, and with 12 where a contender failed alone."""
    from bareboat_study import listing, study_report

    page = str(report_export.page_of(context, found.id))
    shown = study_report.read(context.store, found.id)
    listing.keep_verdict(context.store, shown.found)
    return _report(context, shown, Request(("html",), None, page, context.options.force))


def _report(context: Context, shown: StudyReport, request: Request) -> int:
    from bareboat_study import published, text

    result, study = shown.found, shown.matrix.id
    where = ""
    if request.formats:
        files = report_export.study_files(shown, request.formats)
        try:
            where = report_export.write(context, request, files, [study])
        except UsageError as error:  # another program wrote the file meanwhile
            raise error.but(remedy=f"bareboat report {study} -o NAME.html") from None
    if request.is_printed:
        pass
    elif context.options.json:
        console.result_json(text.values(result) | {"published": shown.beside})
    else:
        width = console.width()
        for line in text.study_lines(result, width, console.paint if sys.stdout.isatty() else None):
            console.result(line)
        for table in published.tables(shown.beside):
            console.result("\n".join(("", *table.terminal(width))))
        for note in published.notes(shown.beside):
            console.result("\n".join(text.wrapped(note, width)))
        _note_next(shown, where, context)
        if where:
            console.result(f"\nreport: {where}")
    return _code_of(result)


def _code_of(found: StudyFindings) -> int:
    """The exit code of a study, in which a contender may have failed alone, or a point has too few runs."""
    known = [each.analysis for contrast in found.contrasts for each in contrast.points]
    if any(each.fails_alone for each in known if each is not None):
        return FAILED_ALONE
    return 1 if None in known and not found.missing else 0


def _note_next(shown: StudyReport, page: str, context: Context) -> None:
    """Show the command that follows for runs that are left, and where to find the cause of a difference."""
    from bareboat_study.statistics import Verdict

    name = shown.matrix.id
    if shown.found.missing:
        most = "at most " if shown.matrix.prove.until_decided else ""
        console.result(f"\n{most}{counted(shown.found.missing, 'run')} left:  bareboat prove --resume {name}")
    elif any(each.analysis.verdict is Verdict.DIFFERENT for each in shown.compared):
        if any(each.analysis.is_busy for each in shown.compared):
            words = words_of_run(context.options) if hasattr(context.options, "file") else []
            scheduler = shown.studies[0].job.scheduler
            where = ["--scheduler", str(scheduler)] * registry.is_queued(scheduler)
            command = shlex.join(["bareboat", "prove", *where, *(words or ["FILE"])])
            console.result(f"\nmeasure again on an idle machine:\n  {command}")
            return
        figures = "the figures of the report" if page else f"bareboat report {name} -o {name}.html"
        console.result(f"\nfind the cause in the table above, and in\n  {figures}")
