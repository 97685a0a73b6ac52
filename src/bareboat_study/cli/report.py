"""bareboat report: show results of studies, sweeps and runs, and write them as pages, tables and figures."""

from __future__ import annotations

import argparse
import os

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat_base.errors import UsageError
from bareboat_base.nearest import nearest
from bareboat_images.store import Store
from bareboat_study.cli import report_export
from bareboat_study.cli.report_export import Request

EXAMPLE = """bareboat report digits-20261120-101500 -o report.html
  bareboat report digits-20261120-101500 --csv --pdf paper"""


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="studies, a sweep or a run, or job names")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="path of the page, or of the file of one other format"
    )
    report_export.add(parser)


def run(context: Context) -> int:
    from bareboat.cli.status import find, show_all
    from bareboat.runs import submission

    options, store = context.options, context.store
    request = report_export.read(options, lambda name: _is_run(store, submission.find(store, name)))
    if not options.runs and not request.formats:
        return show_all(context)
    report_export.check(context, request)
    if not options.runs:
        options.runs = [_newest_study(context, request)]
    from bareboat.runs import sweeps

    runs = list(dict.fromkeys(find(context, name) for name in options.runs))
    for name in runs:
        if not os.path.lexists(store.run(name)):
            raise store.missing_run(name)
        is_sweep = sweeps.find(store, name) is not None
        if not is_sweep and _is_study(store, name):
            continue
        if len(runs) > 1:
            what = "is a sweep" if is_sweep else "is a single run"
            raise UsageError(
                f"{name} {what} and cannot be combined with other runs",
                remedy=f"bareboat report {name}   # alone",
            )
        from bareboat_study.cli import report_run, report_sweep

        if is_sweep:
            return report_sweep.run(context, name, request)
        return report_run.run(context, name, request)
    from bareboat_study.cli import result

    return result.run(context, runs, request)


def _is_run(store: Store, name: str) -> bool:
    try:
        return os.path.lexists(store.run(name))
    except UsageError:
        return False


def _is_study(store: Store, name: str) -> bool:
    from bareboat_study import listing

    if listing.is_point(store, name):
        raise UsageError(f"{name} is a point of a study", remedy=f"bareboat report {name.rpartition('.')[0]}")
    return listing.is_study(store, name)


def _newest_study(context: Context, request: Request) -> str:
    store = context.store
    runs = store.runs()
    if request.folder is not None and not os.path.isdir(request.folder):
        near = nearest(request.folder, runs)
        if near is not None:
            raise UsageError(f"run {request.folder} not found; did you mean {near}?", remedy=f"{near} DIR")
    for run_id in reversed(runs):
        if _is_study(store, run_id):
            console.note(f"study {run_id} (the newest)")
            return run_id
    flags = [f"--{name}" for name in request.formats]
    raise UsageError(
        f"{' '.join(flags)}: no study is in the store yet",
        remedy=f"bareboat report RUN {' '.join(flags)}   # bareboat status --all lists the runs",
    )
