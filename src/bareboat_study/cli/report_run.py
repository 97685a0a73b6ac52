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
from bareboat_base.printable import counted, one_line
from bareboat_study.cli import report_export

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bareboat.model import MemorySample, Record
    from bareboat.runs.state import Status
    from bareboat_images.store import Store
    from bareboat_study.cli.report_export import Request


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
_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 40
_MOST_TEXT = 2000


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
        curve = _curve(record.memory)
        yield (
            "memory",
            f"at most {record.peak_memory_bytes / 2**20:,.1f} MiB" + (f"  {curve}" if curve else ""),
        )
    yield from _results(record)


def _results(record: Record | None) -> list[tuple[str, str]]:
    return [(name, f"{float(value):.6g}") for name, value in record.results.items()] if record else []


def _curve(samples: Sequence[MemorySample]) -> str:
    """The memory over time; each bar is the largest of its samples."""
    if len(samples) < 2:
        return ""
    size = -(-len(samples) // _MOST_BARS)
    peaks = [max(s.bytes for s in samples[at : at + size]) for at in range(0, len(samples), size)]
    most = max(*peaks, 1)
    return "".join(_BARS[peak * (len(_BARS) - 1) // most] for peak in peaks)


# --------------------------------------------------------------------------------------------------
# Files.


def _files(store: Store, status: Status, record: Record | None) -> Mapping[str, bytes]:
    """The series of a run: what its ranks' meters wrote step by step, and its memory."""
    from bareboat_study import report_series
    from bareboat_study.report_values import as_csv

    made = status.submission
    rows: list[Sequence[object]] = [("run", "series", "rank", "step", "at_s", "value")]
    for each in report_series.read(store.run(made.run_id), made.world_size, record):
        rows += [(made.run_id, each.name, each.rank, p.step, p.at_s, p.value) for p in each.points]
    return report_export.encoded({"series.csv": as_csv(rows)})
