"""The list of runs and studies: a line for each, and below it what else is known."""

from __future__ import annotations

import contextlib
import functools
import shlex
import time
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.folding import folded
from bareboat.runs.studies import Listed
from bareboat_base.clock import epoch_s
from bareboat_base.errors import StoreError
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Record
    from bareboat.model.fabric import Transport
    from bareboat.model.record import Health
    from bareboat.model.sweep import Sweep
    from bareboat.runs.state import Status
    from bareboat_images.store import Store

_HEAD = ("run", "command", "where", "result", "for", "age")
#: Of a column on a terminal; a longer name has a line of its own.
_MOST_NAME, _MOST_WHERE = 26, 16
_LEAST_COMMAND, _MOST_COMMAND = 10, 40
_MOST_CELL = 2000
_BELOW = "    "


def lines(store: Store, found: list[Status | Listed], *, apart: bool, width: int | None) -> list[str]:
    """The list. `apart`: a sweep point by point, and the nodes of each run; `width`: of the terminal."""
    if not found:
        return ["no runs yet"]
    shown: list[Status | Listed] = []
    for each in found:
        shown += (apart and not isinstance(each, Listed) and each.points) or (each,)
    rows = [row(each) for each in shown]
    below = [[detail(store, each, apart=apart), *ending_lines(each)] for each in shown]
    return placed(rows, below, width)


def ending_lines(each: Status | Listed) -> list[str]:
    """Why a run failed, and what addresses that, or a job that never starts."""
    if isinstance(each, Listed):
        return []
    stuck = ["it never starts by itself", f"try: {each.stuck_remedy}"] if each.stuck else []
    return console.end_lines(each.end, indentation="") or stuck


def row(each: Status | Listed) -> tuple[str, ...]:
    """The cells of a run's line."""
    cells: tuple[str, ...]
    if isinstance(each, Listed):
        since = each.started_at_epoch_s
        end = time.time() if each.is_measured else each.changed_at_epoch_s
        cells = (
            each.run_id,
            shlex.join(each.command) or each.name,
            each.host.partition(".")[0],
            _in_a_word(each),
            _length(end - since) if since else "",
            _age(time.time() - since) if since else "",
        )
    else:
        made = each.submission
        job = f"{made.scheduler} job {each.job_id or '?'}"
        where = made.host.partition(".")[0] if made.supervisor else job
        since = epoch_s(made.submitted_at)
        cells = (
            made.run_id,
            shlex.join(made.command) or made.name,
            where,
            each.result,
            _duration(each),
            _age(time.time() - since) if since else "",
        )
    return tuple(one_line(cell, limit=_MOST_CELL) for cell in cells)


def detail(store: Store, each: Status | Listed, *, apart: bool) -> str:
    """What else is known: a reason, a warning, how far a study is."""
    if isinstance(each, Listed):
        if each.damage:
            return each.damage
        if each.verdict is not None:
            return each.verdict.sentence
        if each.state == "failed":
            return each.failure
        done = f"study, {each.done} of {each.total} runs with warm-ups" + f"; jobs: {each.jobs}" * bool(
            each.jobs
        )
        return done if each.state != "stopped" else f"{done}: bareboat prove --resume {each.run_id}"
    details = RunDetails(store, each)
    parts = (
        _values(store, each),
        _place(each) if apart else "",
        _reason(each),
        details.ways[1],
        world(store, each),
        discarded(store, each),
        "; ".join(found.marks if (found := details.health) else ()),
    )
    return "; ".join(filter(None, parts))


def _reason(each: Status) -> str:
    """Why the run is in its state, without the cause of its end, which has lines of its own."""
    own = each.end.words if each.end is not None else ""
    return each.reason.removeprefix(own).removeprefix("; ")


def _in_a_word(study: Listed) -> str:
    """The verdict, in a column of ten; how many there are where comparisons differ."""
    if study.verdict is None:
        return study.state
    verdict = study.verdict.verdict or f"{study.verdict.comparisons} verdicts"
    return {"training diverged": "diverged"}.get(verdict, verdict)


def placed(rows: list[tuple[str, ...]], details: list[list[str]], width: int | None) -> list[str]:
    """A line for each run, cut to a terminal's `width`, and below it what else is known. Elsewhere only the
    command is cut."""
    names = [len(each[0]) for each in rows if width is None or len(each[0]) <= _MOST_NAME]
    widths = [max([len(_HEAD[0]), *names])]
    widths += [max(len(each[column]) for each in [_HEAD, *rows]) for column in range(1, len(_HEAD))]
    if width is not None:
        widths[2] = min(widths[2], _MOST_WHERE)
        left = width - sum(widths[:1] + widths[2:]) - 2 * (len(widths) - 1)
        widths[1] = min(widths[1], max(left, _LEAST_COMMAND))
    widths[1] = min(widths[1], _MOST_COMMAND)
    found = []
    for each, below in zip([_HEAD, *rows], [[], *details], strict=True):
        first = each[0]
        if len(first) > widths[0]:
            found.append(first)
            first = ""
        cells = [
            first,
            *(one_line(cell, limit=size) for cell, size in zip(each[1:], widths[1:], strict=True)),
        ]
        aligned = [
            cell.rjust(size) if column >= 4 else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ]
        found.append("  ".join(aligned).rstrip())
        for more in filter(None, below):
            found += folded(_BELOW + one_line(more, limit=_MOST_CELL), width).split("\n")
    return [console.bold(found[0]), *found[1:]]


class RunDetails:
    """What is known of a run besides its state. Its record is read once."""

    def __init__(self, store: Store, status: Status) -> None:
        self._store, self._status = store, status

    @functools.cached_property
    def _record(self) -> Record | None:
        """None for a run that continues, and for a damaged record."""
        from bareboat.runs import records

        with contextlib.suppress(StoreError):
            return records.record(self._store, self._status)
        return None

    @functools.cached_property
    def ways(self) -> tuple[tuple[Transport, ...], str]:
        """The transports between nodes and the warning about them."""
        from bareboat.runs import transports

        made = self._status.submission
        if self._status.points or made.nodes == 1 or not self._status.starts:
            return (), ""
        if self._record is not None:
            return self._record.transports, self._record.fabric_mark
        found = transports.read(self._store.run(made.run_id))
        # Missing reports mean something only at the end.
        return found, transports.mark(made.fabric, found) if found else ""

    @property
    def health(self) -> Health | None:
        """What the ranks may use on each node against what the job requested."""
        from bareboat.model.record import Health
        from bareboat.runs import node_resources

        if self._status.points or not self._status.starts:
            return None
        if self._record is not None:
            return self._record.health if isinstance(self._record.health, Health) else None
        with contextlib.suppress(StoreError):
            return node_resources.read(self._store.run(self._status.submission.run_id))
        return None


def world(store: Store, status: Status) -> str:
    """In what groups the ranks may be that should be one world."""
    from bareboat.runs import transports

    submission = status.submission
    if status.points or submission.world_size == 1 or not status.starts:
        return ""
    with contextlib.suppress(StoreError):
        return transports.world_mark(store.run(submission.run_id), submission.world_size)
    return ""


def discarded(store: Store, status: Status) -> str:
    """How many files vanished with the run's containers."""
    from bareboat.runs import directory

    with contextlib.suppress(StoreError):
        return directory.discarded(store.run(status.submission.run_id))
    return ""


def point(store: Store, status: Status) -> tuple[Sweep, int] | None:
    """The sweep and the number of a point; None for other runs and for a damaged sweep."""
    from bareboat.runs import sweeps

    try:
        return sweeps.of_point(store, status.submission.run_id)
    except StoreError:
        return None


def _place(status: Status) -> str:
    """On which nodes a scheduler's run is or was, and how often it was started."""
    if status.submission.supervisor or status.points or not status.starts:
        return ""
    again = f", started {len(status.starts)} times" if len(status.starts) > 1 else ""
    return f"on {status.nodes or status.starts[-1].node}{again}"


def _values(store: Store, status: Status) -> str:
    from bareboat.model import sweep

    of = point(store, status)
    return "" if of is None else sweep.point_text(*of).encode("unicode_escape").decode()


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def _duration(status: Status) -> str:
    if not status.starts:
        return ""
    if status.over and not status.ended_at_epoch_s:  # lost: nobody knows when it ended
        return ""
    end = status.ended_at_epoch_s or time.time()
    return _length(end - status.starts[0].at_epoch_s)


def _length(seconds: float) -> str:
    whole = max(int(seconds), 0)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
