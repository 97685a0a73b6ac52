"""The table of a sweep's points: values, exit codes and reported results."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base.errors import StoreError
from bareboat_base.printable import one_line
from bareboat_study.cli import report_export
from bareboat_study.report_values import as_csv

if TYPE_CHECKING:
    from bareboat.model import Record
    from bareboat.model.sweep import Sweep
    from bareboat_study.cli.report_export import Request

FORMATS = ("csv",)
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
    rows = _rows(sweep, points, metrics)
    if request.formats:
        files = report_export.encoded({"points.csv": as_csv(rows)})
        where = report_export.write(context, request, files, [run_id])
        if request.is_printed:
            return 0
        context.progress.note(f"report: {where}")
    if options.json:
        console.result_json([_plain(point) for point in points])
    elif request.file is None:
        shown = [list(map(_text, row)) for row in rows]
        first = len(sweep.names) + 1
        console.result(console.table(shown, right=(0, *range(first + 1, len(shown[0])))))
    return 0


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


def _rows(sweep: Sweep, points: list[_Point], metrics: list[str]) -> list[list[object]]:
    rows: list[list[object]] = [["point", *sweep.names, "state", "exit_code", "wall_s", *metrics]]
    for point in points:
        record = point.record
        ended = (None, None) if record is None else (record.exit_code, record.wall_s)
        results = record.results if record is not None else {}
        cells = (*ended, *(results.get(name) for name in metrics))
        rows.append([point.index, *point.values.values(), point.state, *cells])
    return rows


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else one_line(str(cell), limit=_MOST_CELL)
