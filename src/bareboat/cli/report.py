"""bareboat report: show results of studies, sweeps and runs, and write them as pages, tables and figures."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bareboat.cli import console, report_export, report_trackers
from bareboat.cli.common import Context, add_common
from bareboat.cli.libraries import check_library
from bareboat.cli.report_export import Request
from bareboat.errors import BareboatError, StoreError, UsageError
from bareboat.nearest import nearest
from bareboat.printable import one_line
from bareboat.store import Store

if TYPE_CHECKING:
    from bareboat.model import Record, Study
    from bareboat.study.analysis import Analysis

Finding = tuple["Study", Sequence["Record"], "Analysis"]


EXAMPLE = """bareboat report digits-20261120-101500 -o report.html
  bareboat report digits-20261120-101500 --csv --latex --pdf paper"""


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="studies, a sweep or a run, or job names")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="path of the page, or of the file of one other format"
    )
    report_export.add(parser)
    report_trackers.add(parser)


def run(context: Context) -> int:
    from bareboat.runs import submission

    options, store = context.options, context.store
    request = report_export.read(options, lambda name: submission.find(store, name) in store.runs())
    if not options.runs and options.output is not None:
        raise UsageError("--output requires a study", remedy=EXAMPLE.partition("\n")[0])
    if not options.runs and not request.formats and not report_trackers.asked(options):
        return _list(context)
    report_export.check(context, request)
    report_trackers.check(options)
    if not options.runs:
        options.runs = [_newest_study(context, request)]
    from bareboat.cli.status import find
    from bareboat.runs import sweeps
    from bareboat.study import matrix

    runs = list(dict.fromkeys(find(context, name) for name in options.runs))
    for name in runs:
        is_sweep = sweeps.find(store, name) is not None
        if not is_sweep and not os.path.lexists(store.run(name) / "submission.json"):
            continue
        if len(runs) > 1:
            what = "is a sweep" if is_sweep else "is a single run"
            raise UsageError(
                f"{name} {what} and cannot be combined with other runs",
                remedy=f"bareboat report {name}   # alone",
            )
        from bareboat.cli import report_run, report_sweep

        report_trackers.write(context, runs)
        if is_sweep:
            return report_sweep.run(context, name, request)
        return report_run.run(context, name, request)
    if any(matrix.is_matrix(store, name) for name in runs):
        from bareboat.cli import study_result

        return study_result.run(context, runs, request)
    check_library()
    found = report_export.read_studies(context, runs)
    report_trackers.write(context, runs)
    where = ""
    if request.formats:
        where = report_export.write(context, request, report_export.study_files(found, request.formats), runs)
    if not request.is_printed:
        show(context, found, where)
    return 0


def _newest_study(context: Context, request: Request) -> str:
    store = context.store
    runs = store.runs()
    if request.folder is not None and not os.path.isdir(request.folder):
        near = nearest(request.folder, runs)
        if near is not None:
            raise UsageError(f"run {request.folder} not found; did you mean {near}?", remedy=f"{near} DIR")
    for run_id in reversed(runs):
        if os.path.lexists(store.run(run_id) / "study.json"):
            if not context.options.quiet:
                console.note(f"study {run_id} (the newest)")
            return run_id
    flags = [f"--{name}" for name in (*request.formats, *report_trackers.asked(context.options))]
    raise UsageError(
        f"{' '.join(flags)}: no study is in the store yet", remedy="bareboat prove train.py; or name a run"
    )


def show(context: Context, found: Sequence[Finding], where: str) -> None:
    """Print the verdicts, and where the report was written."""
    if context.options.json:
        console.result_json([analysis for _, _, analysis in found])
        if where:
            console.note(f"report: {where}")
        return
    from bareboat.cli.report_text import study_text

    is_terminal = sys.stdout.isatty()
    for study, _, analysis in found:
        text = study_text(study, analysis, console.width(), console.paint if is_terminal else None)
        console.result(f"\n{text}")
    if where:
        console.result(f"\nreport: {where}")


def _list(context: Context) -> int:
    """List the runs; exit with 4 where one is damaged."""
    shown = {run_id: _shown(context.store, run_id) for run_id in context.store.runs()}
    if context.options.json:
        console.result_json([{"run_id": run_id, "state": state} for run_id, (state, _) in shown.items()])
    elif not shown:
        console.note(f"no runs in {context.store.root}; start one: bareboat prove FILE")
    else:
        for run_id, (state, _) in shown.items():
            console.result(f"{run_id}  {state}")
    return max((code for _, code in shown.values()), default=0)


def _shown(store: Store, run_id: str) -> tuple[str, int]:
    """The state of a run and 0; for a damaged one, the reason and its exit code."""
    try:
        return _state(store, run_id), 0
    except BareboatError as error:  # the other runs are still listed
        return f"damaged: {one_line(error.message)}", StoreError.code


def _state(store: Store, run_id: str) -> str:
    from bareboat.runs import sweeps

    if (found := sweeps.find(store, run_id)) is not None:
        over = sum(os.path.lexists(store.run(name) / "record.json") for name in sweeps.points(store, run_id))
        return f"sweep, {over} of {len(found.points)} points recorded"
    from bareboat.study import matrix

    if matrix.is_matrix(store, run_id):
        left = len(matrix.missing(store, matrix.read(store, run_id)))
        return f"study, {left} runs left:  bareboat prove --resume {run_id}" if left else "study, complete"
    if not os.path.lexists(store.run(run_id) / "study.json"):
        return "run" if os.path.lexists(store.run(run_id) / "record.json") else "stopped before it finished"
    from bareboat.study import prove

    study = prove.read_study(store, run_id)
    missing = len(prove.missing_runs(store, study))
    return f"study, {missing} runs left:  bareboat prove --resume {run_id}" if missing else "study, complete"
