"""The report of one run that is not a study: what ran, how it was planned, how it ended, time and memory."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.model import Decision
from bareboat.runs import directory
from bareboat_base.printable import counted, one_line
from bareboat_study.cli import report_export

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bareboat.model import Record
    from bareboat.runs.state import Status
    from bareboat_images.store import Store
    from bareboat_study.cli.report_export import Request
    from bareboat_study.meterlog import Process


class _Image(Struct, frozen=True):
    """Of a job: the image that it names."""

    image: str = ""


class _Plan(Struct, frozen=True):
    """What is shown of a stored plan, whose commands are not read again."""

    job: _Image
    engine: str
    launcher: str
    decisions: tuple[Decision, ...]


FORMATS = ("csv",)
_MOST_TEXT = 2000
#: Of a table of series.
_MOST_RANKS, _MOST_NAMES = 256, 100


def run(context: Context, run_id: str, request: Request) -> int:
    from bareboat.cli.wait import as_json
    from bareboat.runs import records, state

    report_export.check_formats(request, FORMATS, "a run that is no study")
    store = context.store
    (status,) = state.look(store, [run_id])
    record = records.record(store, status)
    path = store.run(run_id) / "plan.json"
    plan = store.read(path, _Plan) if os.path.lexists(path) else None
    if request.formats:
        where = report_export.write(context, request, _files(store, status, record), [run_id])
        if request.is_printed:
            return 0
        context.progress.note(f"report: {where}")
    if context.options.json:
        console.result_json(
            {
                "run_id": run_id,
                "state": status.state.value,
                "reason": status.reason,
                "submission": status.submission,
                "record": None if record is None else as_json(record),
                "plan": plan,
            }
        )
        return 0
    console.result(console.bold(run_id))
    for line in _screen([*_facts(status, plan), *_measured(record)], plan, console.width()):
        console.result(line)
    return 0


def _screen(rows: Sequence[tuple[str, str]], plan: _Plan | None, width: int | None) -> Iterator[str]:
    """The report as lines, which fold at the width of a terminal."""
    chosen = [(d.subject, f"{d.choice}: {d.reason}") for d in plan.decisions] if plan is not None else []
    left = max(len(name) for name, _ in (*rows, *chosen))
    yield from _lines(rows, left, width)
    if chosen:
        yield "plan"
        yield from _lines(chosen, left, width)


def _lines(rows: Sequence[tuple[str, str]], left: int, width: int | None) -> Iterator[str]:
    for name, text in rows:
        line = f"  {name:<{left}}  {one_line(text, limit=_MOST_TEXT)}"
        if width is None or len(line) <= width or width < left + 24:
            yield line
        else:
            yield from textwrap.wrap(line, width, subsequent_indent=" " * (left + 4), break_on_hyphens=False)


def _where(status: Status) -> str:
    from bareboat import registry

    made = status.submission
    if made.supervisor:
        return made.host
    nodes = f" on {status.nodes}" if status.nodes else ""
    return f"{registry.scheduler(made.scheduler).TITLE} job {status.job_id}{nodes}"


def _facts(status: Status, plan: _Plan | None) -> Iterator[tuple[str, str]]:
    made = status.submission
    yield "command", shlex.join(made.command) or "what the image runs"
    yield "where", _where(status)
    yield (
        "image",
        f"{plan.job.image} {made.image_digest or ''}" if plan is not None else str(made.image_digest),
    )
    yield "engine", made.engine + (f", launcher {plan.launcher}" if plan is not None else "")
    yield "ranks", f"{made.world_size} on {counted(made.nodes, 'node')}"
    yield "state", status.state.value
    if status.exit_code is not None:
        yield "exit code", str(status.exit_code)
    if status.reason:
        yield "cause", status.reason


def _measured(record: Record | None) -> Iterator[tuple[str, str]]:
    if record is None:
        return
    yield "started", record.started_at
    yield "time", record.wall_text
    for each in record.deliveries:
        yield "image copy", f"{each.took_s} s on {each.node}: {each.how}"
    if record.peak_memory_bytes:
        yield "memory", f"at most {record.peak_memory_bytes / 2**20:,.1f} MiB"
    yield from ((name, f"{float(value):.6g}") for name, value in record.results.items())


# --------------------------------------------------------------------------------------------------
# Files.


def _files(store: Store, status: Status, record: Record | None) -> Mapping[str, bytes]:
    """The series of a run: what its ranks' meters wrote step by step, and its memory."""
    from bareboat_study import meterlog
    from bareboat_study.report_values import as_csv

    made = status.submission
    rows: list[Sequence[object]] = [("run", "series", "rank", "step", "at_s", "value")]
    for rank in range(min(made.world_size, _MOST_RANKS)):
        process = meterlog.read_so_far(store.run(made.run_id) / directory.METER, rank)
        if process is not None:
            rows += [(made.run_id, name, rank, *point) for name, *point in _of_rank(process)]
    for number, sample in enumerate(record.memory if record is not None else ()):
        rows.append((made.run_id, "memory_bytes", None, number, sample.at_s, float(sample.bytes)))
    return report_export.encoded({"series.csv": as_csv(rows)})


def _of_rank(process: Process) -> Iterator[tuple[str, int, float | None, float]]:
    """Name, step, seconds since the start of the rank, and value: of each step, and of each result."""
    ends_s = []
    for step, (begin, end) in enumerate(process.step_times()):
        ends_s.append((end - process.loaded_ns) / 1e9)
        if end >= begin:
            yield "step_s", step, ends_s[-1], (end - begin) / 1e9
    names = [name for name in dict.fromkeys(each.name for each in process.reports) if name.isprintable()]
    kept = {*names[:_MOST_NAMES]}
    for each in sorted((own for own in process.reports if own.name in kept), key=lambda own: own.name):
        done = min(each.step, len(ends_s))
        yield each.name, each.step, ends_s[done - 1] if done else None, float(each.value)
