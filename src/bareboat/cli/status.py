"""bareboat status: show runs, submitted and on this machine."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import textwrap
import time
from typing import TYPE_CHECKING, Any

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.clock import epoch_s
from bareboat.errors import StoreError, Terminated, UsageError
from bareboat.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Straggler
    from bareboat.model.fabric import Transport
    from bareboat.model.sweep import Sweep
    from bareboat.runs.state import Status
    from bareboat.store import Store

EXAMPLE = "bareboat status --watch"
#: The number of newest runs that are listed without --all.
_NEWEST = 20
_WATCH_S = 2.0
_MOST_CELL = 2000


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="runs or job names (default: the newest)")
    parser.add_argument("--all", action="store_true", help="list all runs, not only the newest")
    parser.add_argument("--watch", action="store_true", help="refresh until all runs have ended")


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="run, or job name for its newest run (default: the newest run)"
    )


def newest(context: Context) -> str:
    """The named run or job, else the newest run, with a note on stderr."""
    from bareboat.runs import submission

    named: str | None = getattr(context.options, "run", None)
    if named is not None:
        return find(context, named)
    runs = submission.submitted(context.store)
    if not runs:
        raise UsageError("no runs yet", remedy="bareboat run job.toml, or bareboat submit job.toml")
    if not context.options.quiet:
        console.note(f"run {runs[-1]} (the newest)")
    return runs[-1]


def find(context: Context, name: str) -> str:
    """The run of this name, with a note on stderr where it is the name of a job."""
    from bareboat.runs import submission

    found = submission.find(context.store, name)
    if found != name and not context.options.quiet:
        console.note(f"run {found} (the newest of {name})")
    return found


def run(context: Context) -> int:
    """Exit with 0; for one named run that ended, with its exit code; with 4 where a run is damaged."""
    try:
        return _run(context)
    except (KeyboardInterrupt, Terminated) as stop:
        stop.add_note("the runs continue")
        raise


def _run(context: Context) -> int:
    from bareboat.runs import submission, sweeps

    options = context.options
    named = [find(context, name) for name in options.runs]
    while True:
        runs = named or submission.submitted(context.store)
        if not options.all and not options.runs:
            runs = runs[-_NEWEST:]
        # With several runs, a scheduler that does not answer must not hide the others.
        found = sweeps.look(context.store, runs, must_answer=len(options.runs) == 1)
        found = [_recorded(context.store, status) for status in found]
        over = all(status.over for status in found)
        if options.json:
            console.result_json([_plain(context.store, status) for status in found])
        else:
            # A sweep that was named is shown point by point.
            _show(context.store, found, live=options.watch, apart=bool(options.runs))
            if len(options.runs) == 1:
                for way in _ways(context.store, found[0])[0]:
                    console.result(f"between nodes: {way.by} uses {way.way}")
        if not options.watch or over:
            break
        time.sleep(_WATCH_S)
    if any(status.damaged for status in found):
        return StoreError.code
    if len(options.runs) == 1 and found[0].exit_code is not None:
        return found[0].exit_code
    return 0


def _recorded(store: Store, status: Status) -> Status:
    """The status, marked as damaged where the run's record is."""
    import dataclasses

    from bareboat.runs import sweeps

    try:
        sweeps.records_of(store, status)
    except StoreError as error:
        reason = "; ".join(filter(None, (status.reason, error.message)))
        return dataclasses.replace(status, reason=reason, damaged=True)
    return status


def _ways(store: Store, status: Status) -> tuple[tuple[Transport, ...], str]:
    """The transports between nodes and the warning about them, as far as known."""
    from bareboat.runs import records, transports

    if status.points or status.submission.nodes == 1 or not status.starts:
        return (), ""
    with contextlib.suppress(StoreError):
        record = records.record(store, status)
        if record is not None:
            return record.transports, record.fabric_mark
    ways = transports.read(store.run(status.submission.run_id))
    # Missing reports mean something only at the end.
    return ways, transports.mark(status.submission.fabric, ways) if ways else ""


def _world(store: Store, status: Status) -> str:
    """In what groups the ranks may be that should be one world."""
    from bareboat.runs import transports

    submission = status.submission
    if status.points or submission.world_size == 1 or not status.starts:
        return ""
    with contextlib.suppress(StoreError):
        return transports.world_mark(store.run(submission.run_id), submission.world_size)
    return ""


def _plain(store: Store, status: Status) -> dict[str, Any]:
    of = _point(store, status)
    more: dict[str, Any] = {} if of is None else {"index": of[1], "values": of[0].values(of[1])}
    if status.points:
        more = {"points": [_plain(store, each) for each in status.points]}
    ways, mark = _ways(store, status)
    return {
        **more,
        "run_id": status.submission.run_id,
        "command": list(status.submission.command),
        "host": status.submission.host,
        "scheduler": status.submission.scheduler,
        "job_id": status.submission.job_id,
        "state": status.state.value,
        "exit_code": status.exit_code,
        "reason": status.reason,
        "damaged": status.damaged,
        "end": status.end,
        "nodes": status.submission.nodes,
        "hosts": status.nodes,
        "starts": list(status.starts),
        "straggler": _slow(store, status),
        "submitted_at": status.submission.submitted_at,
        "transports": list(ways),
        "fabric_mark": mark,
        "world_mark": _world(store, status),
    }


def _show(store: Store, found: list[Status], *, live: bool, apart: bool) -> None:
    if not found:
        console.result("no runs yet")
        return
    shown = [one for each in found for one in ((apart and each.points) or (each,))]
    rows = [_row(status) for status in shown]
    details = [
        "; ".join(
            filter(
                None,
                (
                    _values(store, status),
                    _place(status) if apart else "",
                    _told(store, status),
                    _marks(store, status),
                ),
            )
        )
        for status in shown
    ]
    console.result("\n".join(_lines(rows, details, console.width())), clear=live)


_HEAD = ("run", "command", "where", "exit", "for", "age")
#: Of a column on a terminal; a longer name has a line of its own.
_MOST_NAME, _MOST_WHERE = 26, 16
_LEAST_COMMAND, _MOST_COMMAND = 10, 40


def _row(status: Status) -> tuple[str, ...]:
    made = status.submission
    where = made.host.partition(".")[0] if made.supervisor else f"{made.scheduler} {made.job_id or '?'}"
    since = epoch_s(made.submitted_at)
    cells = (
        made.run_id,
        shlex.join(made.command) or made.name,
        where,
        status.state.value if status.exit_code is None else str(status.exit_code),
        _duration(status),
        _age(time.time() - since) if since else "",
    )
    return tuple(one_line(cell, limit=_MOST_CELL) for cell in cells)


def _lines(rows: list[tuple[str, ...]], details: list[str], width: int | None) -> list[str]:
    """A line for each run, cut to a terminal's `width`, and below it what else is known. Elsewhere only the
    command is cut."""
    names = [len(row[0]) for row in rows if width is None or len(row[0]) <= _MOST_NAME]
    widths = [max([len(_HEAD[0]), *names])]
    widths += [max(len(row[column]) for row in [_HEAD, *rows]) for column in range(1, len(_HEAD))]
    if width is not None:
        widths[2] = min(widths[2], _MOST_WHERE)
        left = width - sum(widths[:1] + widths[2:]) - 2 * (len(widths) - 1)
        widths[1] = min(widths[1], max(left, _LEAST_COMMAND))
    widths[1] = min(widths[1], _MOST_COMMAND)
    lines = []
    for row, detail in zip([_HEAD, *rows], ["", *details], strict=True):
        first = row[0]
        if len(first) > widths[0]:
            lines.append(first)
            first = ""
        cells = [first, *(one_line(cell, limit=size) for cell, size in zip(row[1:], widths[1:], strict=True))]
        placed = [
            cell.rjust(size) if column >= 4 else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(placed).rstrip())
        if detail:
            text = one_line(detail, limit=_MOST_CELL)
            whole = width is None or width < 40
            lines += (
                [f"    {text}"]
                if whole
                else textwrap.wrap(text, width or 0, initial_indent="    ", subsequent_indent="    ")
            )
    return [console.bold(lines[0]), *lines[1:]]


def _place(status: Status) -> str:
    """On which nodes a scheduler's run is or was, and how often it was started."""
    if status.submission.supervisor or status.points or not status.starts:
        return ""
    again = f", started {len(status.starts)} times" if len(status.starts) > 1 else ""
    return f"on {status.nodes or status.starts[-1].node}{again}"


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def _point(store: Store, status: Status) -> tuple[Sweep, int] | None:
    """The sweep and the number of a point; None for other runs and for a damaged sweep."""
    from bareboat.runs import sweeps

    try:
        return sweeps.of_point(store, status.submission.run_id)
    except StoreError:
        return None


def _values(store: Store, status: Status) -> str:
    from bareboat.model import sweep

    of = _point(store, status)
    return "" if of is None else sweep.told(*of).encode("unicode_escape").decode()


def _marks(store: Store, status: Status) -> str:
    return "; ".join(filter(None, (_ways(store, status)[1], _world(store, status))))


def _told(store: Store, status: Status) -> str:
    slow = _slow(store, status)
    return "; ".join(filter(None, (status.reason, slow.text if slow else "")))


def _slow(store: Store, status: Status) -> Straggler | None:
    from bareboat.runs import records

    try:
        return records.straggler_of(store, status)
    except StoreError:  # a damaged record
        return None


def _duration(status: Status) -> str:
    if not status.starts:
        return ""
    if status.over and not status.ended_at_epoch_s:  # lost: nobody knows when it ended
        return ""
    end = status.ended_at_epoch_s or time.time()
    seconds = max(int(end - status.starts[0].at_epoch_s), 0)
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
