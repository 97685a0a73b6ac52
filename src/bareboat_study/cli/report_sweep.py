"""The table of a sweep's points: values, exit codes and reported results."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base import __version__
from bareboat_base.errors import StoreError
from bareboat_base.printable import one_line
from bareboat_study.cli import report_export

if TYPE_CHECKING:
    from bareboat.model import Record
    from bareboat.model.sweep import Sweep
    from bareboat_study.cli.report_export import Request

FORMATS = ("csv", "latex", "markdown")
_MOST_CELL = 200


class _Point(Struct, frozen=True, kw_only=True):
    """`state`: the scheduler's state of a point without a record."""

    run_id: str
    index: int
    values: dict[str, str]
    state: str
    record: Record | None


def run(context: Context, run_id: str, request: Request) -> int:
    from bareboat.runs import sweeps

    options = context.options
    report_export.check_formats(request, FORMATS, "a sweep")
    sweep = sweeps.find(context.store, run_id)
    assert sweep is not None
    points = _points(context, run_id, sweep)
    metrics = list(dict.fromkeys(name for point in points if point.record for name in point.record.results))
    if request.formats:
        files = _files(run_id, sweep, points, metrics, request.formats)
        where = report_export.write(context, request, files, [run_id])
        if request.is_printed:
            return 0
        context.progress.note(f"report: {where}")
    if options.json:
        console.result_json([_plain(point) for point in points])
    elif request.file is None:
        rows = _rows(sweep, points, metrics, exact=False)
        shown = [[one_line(cell, limit=_MOST_CELL) for cell in row] for row in rows]
        first = len(sweep.names) + 1
        table = console.table(shown, right=(0, *range(first + 1, first + 3 + len(metrics))))
        console.result(fitted(table, shown, first, console.width()))
    return 0


def fitted(table: str, rows: Sequence[Sequence[str]], state: int, width: int | None) -> str:
    """The table, or, where it is wider than the terminal, a paragraph for each point. `state`: the column of
    its state, before which its values are."""
    head, *points = rows
    longest = max(sum(max(len(row[c]) for row in rows) + 2 for c in range(len(head))) - 2, 0)
    if width is None or longest <= width:
        return table
    lines = []
    for row in points:
        lines.append(f"point {row[0]}: {row[state]}")
        others = [at for at in range(1, len(head)) if at != state and row[at]]
        lines += textwrap.wrap(
            "; ".join(f"{head[at]} {row[at]}" for at in others), max(width, 40), initial_indent="  ",
            subsequent_indent="  ", break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines)


def _files(
    run_id: str,
    sweep: Sweep,
    points: list[_Point],
    metrics: list[str],
    formats: Sequence[str],
) -> dict[str, bytes]:
    from bareboat_study.report_values import Table, as_csv, markdown

    head, *rows = _rows(sweep, points, metrics, exact=False)
    table = Table(head=head, groups=[rows], texts=range(1, len(sweep.names) + 2))
    texts: dict[str, str] = {}
    if "csv" in formats:
        texts["points.csv"] = as_csv(_rows(sweep, points, metrics, exact=True))
    if "latex" in formats:
        first = f"% Bareboat {__version__}, sweep {one_line(run_id)}; requires \\usepackage{{booktabs}}"
        texts["table.tex"] = "\n".join([first, *table.tabular()]) + "\n"
    if "markdown" in formats:
        texts["report.md"] = f"## {markdown(run_id)}\n\n{table.markdown()}\n"
    return report_export.encoded(texts)


def _points(context: Context, run_id: str, sweep: Sweep) -> list[_Point]:
    """The points' current states; records of points that ended are written."""
    from bareboat.model import Record
    from bareboat.runs import submission, sweeps

    names = sweeps.points(context.store, run_id)
    states = dict.fromkeys(names, "not recorded")
    if submission.is_submitted(context.store, run_id):
        (status,) = sweeps.look(context.store, [run_id], must_answer=False)
        states |= {each.submission.run_id: each.state.value for each in status.points}
        with contextlib.suppress(StoreError):  # a damaged record is reported below
            sweeps.records_of(context.store, status)
    found = []
    for index, name in enumerate(names):
        path, record, state = context.store.run(name) / "record.json", None, states[name]
        if os.path.lexists(path):
            try:
                record = context.store.read(path, Record)
            except StoreError as error:
                state = f"damaged: {error.message}"
            else:
                state = _state(record)
        found.append(_Point(run_id=name, index=index, values=sweep.values(index), state=state, record=record))
    return found


def _state(record: Record) -> str:
    if record.end is not None:
        return record.end.state.value
    return "failed" if record.exit_code else "completed"


def _plain(point: _Point) -> dict[str, Any]:
    record = point.record
    return {
        "run_id": point.run_id,
        "index": point.index,
        "values": point.values,
        "state": point.state,
        "exit_code": None if record is None else record.exit_code,
        "wall_s": None if record is None else record.wall_s,
        "end": None if record is None else record.end,
        "results": {} if record is None else record.results,
    }


def _rows(sweep: Sweep, points: list[_Point], metrics: list[str], *, exact: bool) -> list[list[str]]:
    rows = [
        [
            "point",
            *sweep.names,
            "state",
            "exit_code" if exact else "exit",
            "wall_s" if exact else "s",
            *metrics,
        ]
    ]
    for point in points:
        ended = ["", ""]
        results: list[str] = [""] * len(metrics)
        if point.record is not None:
            wall_s = point.record.wall_s
            took = "" if wall_s is None else repr(wall_s) if exact else f"{wall_s:.1f}"
            ended = [str(point.record.exit_code), took]
            given = [point.record.results.get(name) for name in metrics]
            results = ["" if value is None else _result(value, exact=exact) for value in given]
        rows.append([str(point.index), *point.values.values(), point.state, *ended, *results])
    return rows


def _result(value: float | str, *, exact: bool) -> str:
    """One result; non-finite numbers come as text."""
    if isinstance(value, str):
        return value
    return repr(value) if exact else f"{value:.6g}"
