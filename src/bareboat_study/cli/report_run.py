"""The report of one run that is not a study: what ran, how it was planned, how it ended, time and memory."""

from __future__ import annotations

import os
import re
import shlex
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.model import Decision
from bareboat_base.clock import epoch_s
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import counted, one_line
from bareboat_study.cli import report_export

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bareboat.model import MemorySample, Record
    from bareboat.runs.state import Status
    from bareboat_images.store import Store
    from bareboat_study.cli.report_export import Request
    from bareboat_study.report_run import RunReport
    from bareboat_study.report_series import RankLog, Series


class _Image(Struct, frozen=True):
    """Of a job: the image that it names."""

    image: str = ""


class _Plan(Struct, frozen=True):
    """What is shown of a stored plan, whose commands are not read again."""

    job: _Image
    engine: str
    launcher: str
    decisions: tuple[Decision, ...]


FORMATS = ("csv", "markdown", "html")
_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 40
_MOST_TEXT = 2000
#: Of a page: the end of the output, and of each rank's, and the number of ranks shown.
_TAIL_BYTES, _RANK_TAIL_BYTES = 1 << 15, 1 << 12
_MOST_RANKS, _MOST_TAILS = 256, 16
_EXIT = expression(r"(\d{1,8}) (\d{1,3})", re.ASCII)


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
        files = _files(store, status, record, plan, request.formats)
        where = report_export.write(context, request, files, [run_id])
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


def _files(
    store: Store, status: Status, record: Record | None, plan: _Plan | None, formats: Sequence[str]
) -> Mapping[str, bytes]:
    from bareboat_study import report_series

    folder = store.run(status.submission.run_id)
    logs = report_series.rank_logs(folder, status.submission.world_size)
    files: dict[str, str] = {}
    if "csv" in formats:
        files["series.csv"] = _csv(status.submission.run_id, report_series.series_of(record, logs))
    if "markdown" in formats:
        files["report.md"] = _markdown(status, record, plan)
    if "html" in formats:
        from bareboat_study.report_run import render_run

        files["report.html"] = render_run(_report(store, status, record, plan, logs))
    return report_export.as_files(files, {}, ())


def _csv(run_id: str, series: Sequence[Series]) -> str:
    from bareboat_study.report_values import as_csv

    rows: list[Sequence[object]] = [("run", "series", "rank", "step", "at_s", "value")]
    for each in series:
        rows += [(run_id, each.name, each.rank, p.step, p.at_s, p.value) for p in each.points]
    return as_csv(rows)


def _markdown(status: Status, record: Record | None, plan: _Plan | None) -> str:
    from bareboat_study.report_values import Table, markdown

    facts = Table(head=("", ""), groups=[[*_facts(status, plan), *_measured(record)]], texts=(0, 1))
    parts = [f"## {markdown(status.submission.run_id)}", facts.markdown()]
    if plan is not None:
        chosen = [(each.subject, each.choice, each.reason) for each in plan.decisions]
        table = Table(head=("decision", "choice", "reason"), groups=[chosen], texts=(0, 1, 2))
        parts += ["### Plan", table.markdown()]
    return "\n\n".join(parts) + "\n"


def _report(
    store: Store, status: Status, record: Record | None, plan: _Plan | None, logs: Sequence[RankLog]
) -> RunReport:
    from bareboat_study.report_run import RunReport

    made = status.submission
    word = status.state.value
    if status.exit_code:
        word += f", exit code {status.exit_code}"
    left_out = ("state", "cause", "memory", *(record.results if record is not None else ()))
    shown = [*_facts(status, plan), *_measured(record)]
    return RunReport(
        run_id=made.run_id,
        title=made.name or made.run_id,
        word=word,
        is_good=None if status.exit_code is None else status.exit_code == 0,
        cause=status.reason,
        facts=[(name, one_line(text, limit=_MOST_TEXT)) for name, text in shown if name not in left_out],
        results=_results(record),
        decisions=plan.decisions if plan is not None else (),
        times=_times(status, record, logs),
        memory=record.memory if record is not None else (),
        memory_kind=record.memory_kind if record is not None else "",
        ranks=_ranks(store, status, logs),
        outputs=_outputs(store, status),
    )


def _times(status: Status, record: Record | None, logs: Sequence[RankLog]) -> list[tuple[str, float]]:
    """The parts of the time between submission and end, as far as known; of the job's own time, what the
    meter of its first rank measured."""
    if record is None or record.wall_s is None or not status.starts:
        return []
    began = status.starts[0].at_epoch_s
    queued = epoch_s(status.submission.submitted_at)
    times = [] if status.submission.supervisor else [("queue", float(max(0, began - queued)))]
    delivery_s = float(max((each.took_s for each in record.deliveries), default=0))
    inner = [("copy of the image", delivery_s)]
    if logs and logs[0].steps:
        log = logs[0]
        first_s = log.steps[0].value
        inner += [
            ("import", log.import_s),
            ("set-up", log.setup_s),
            ("first step", first_s),
            ("other steps", log.steps_s - first_s),
        ]
    rest_s = record.wall_s - sum(seconds for _, seconds in inner)
    if rest_s < 0:  # clocks of different precision
        inner, rest_s = [], record.wall_s
    times += [(name, seconds) for name, seconds in inner if seconds > 0]
    return [*times, ("start, end and rest" if inner[1:] else "run", rest_s)]


def _ranks(
    store: Store, status: Status, logs: Sequence[RankLog]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    made = status.submission
    if made.world_size == 1 and not logs:
        return (), ()
    codes = _exit_codes(store, made.run_id)
    known = {log.rank: log for log in logs}
    each = made.world_size // made.nodes
    names = sorted({name for log in logs for name in log.results})[:8]
    head = ("rank", "node", "exit code", "steps", "median step, ms", "peak memory, MiB", *names)
    rows = []
    for rank in range(min(made.world_size, _MOST_RANKS)):
        log = known.get(rank)
        row = [str(rank), str(rank // each), codes.get(rank, ""), "", "", ""]
        if log is not None:
            seconds = [point.value for point in log.steps]
            row[3] = f"{len(seconds):,}"
            row[4] = f"{statistics.median(seconds) * 1000:.4g}" if seconds else ""
            row[5] = f"{log.peak_rss_bytes / 2**20:,.1f}" if log.peak_rss_bytes else ""
        results = log.results if log is not None else {}
        rows.append([*row, *(f"{results[name][-1].value:.6g}" if name in results else "" for name in names)])
    return head, rows


def _exit_codes(store: Store, run_id: str) -> dict[int, str]:
    """The exit code of each rank whose code was written."""
    from bareboat.runs import directory

    folder = store.run(run_id)
    found: dict[int, str] = {}
    for place in (folder / directory.RANKS, directory.control(folder)):
        for path in directory.files_of(place, most=100_000):
            if not path.name.startswith("exits."):
                continue
            try:
                text = untrusted.read_text(path)
            except OSError:
                continue
            parts = (_EXIT.fullmatch(line) for line in text.splitlines())
            found |= {int(part[1]): part[2] for part in parts if part is not None}
    return found


def _outputs(store: Store, status: Status) -> list[tuple[str, str]]:
    """The end of the output, and of the output of the first ranks."""
    from bareboat.runs import output, submission

    made = status.submission
    found = [("The end of the output", _tail(submission.output_log(store, made.run_id), _TAIL_BYTES))]
    found += [
        ("From the scheduler", _tail(path, _TAIL_BYTES)) for path in submission.scheduler_logs(store, made)
    ]
    for rank in range(min(made.world_size, _MOST_TAILS) if made.world_size > 1 else 0):
        out, err = output.of_rank(store, made, rank)
        for path, what in ((out, "output"), (err, "error output")):
            found.append((f"The end of rank {rank}'s {what}", _tail(path, _RANK_TAIL_BYTES)))
    return [(title, text) for title, text in found if text]


def _tail(path: os.PathLike[str], limit: int) -> str:
    try:
        data = untrusted.read_tail(os.fspath(path), limit=limit)
    except OSError:
        return ""
    whole = data[data.find(b"\n") + 1 :] if len(data) == limit else data
    return whole.decode(errors="replace").rstrip()
