"""bareboat status: show runs, submitted and on this machine, and studies."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bareboat.cli import console, run_list
from bareboat.cli.argument_parser import number
from bareboat.cli.common import Context, add_common
from bareboat.runs import studies as study_hook
from bareboat.runs.studies import Listed
from bareboat_base.errors import BareboatError, StoreError, Terminated, ToolError, UsageError

if TYPE_CHECKING:
    from bareboat.runs.state import Status
    from bareboat_images.store import Store

EXAMPLE = "bareboat status --watch"
#: The number of newest runs that are listed without --all.
_NEWEST = 20
#: Minimum seconds between polls of a scheduler's runs by default, and of other runs.
_INTERVAL_S, _HERE_S = 5.0, 1.0
#: A scheduler that is slow to answer is asked less often: it rests so many times as long as it worked.
_REST = 10


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="runs or job names (default: the newest)")
    parser.add_argument("--all", action="store_true", help="list all runs, not only the newest")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="follow the runs until all have ended; q or Ctrl-C stops; in a pipe: a line for each change",
    )
    parser.add_argument(
        "--interval",
        type=number("--interval"),
        metavar="S",
        help="seconds between two queries of the scheduler with --watch (default and minimum: 5)",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="run, or job name for its newest run (default: the newest run)"
    )


def newest(context: Context) -> str:
    """The named run, or a job's newest run (no study), else the newest run, with a note on stderr."""
    from bareboat.runs import submission

    named: str | None = getattr(context.options, "run", None)
    if named is not None:
        return find(context, named, lambda run: submission.is_submitted(context.store, run))
    runs = submission.submitted(context.store)
    if not runs:
        raise UsageError("no runs yet", remedy="bareboat run job.toml, or bareboat submit job.toml")
    if not context.options.quiet:
        console.note(f"run {runs[-1]} (the newest)")
    return runs[-1]


def find(context: Context, name: str, accepts: Callable[[str], bool] | None = None) -> str:
    """The run of this name, with a note on stderr where it is the name of a job: its newest run, of those
    that `accepts` takes if there is one."""
    from bareboat.runs import submission

    found = submission.find(context.store, name, accepts)
    if found != name and not context.options.quiet:
        console.note(f"run {found} (the newest of {name})")
    return found


def run(context: Context) -> int:
    """Exit with 0; for one named run that ended, with its exit code; with 4 where a run is damaged."""
    if context.options.watch:
        return _watch(context)
    if context.options.interval is not None:
        raise UsageError("--interval is for --watch", remedy="bareboat status --watch --interval 30")
    try:
        named = [find(context, name) for name in context.options.runs]
        found = _look(context, named, every=context.options.all)
    except (KeyboardInterrupt, Terminated) as stop:
        stop.add_note("the runs continue")
        raise
    return _show(context, found)


def show_all(context: Context) -> int:
    """Print the list of all runs and studies; exit with 4 where one is damaged."""
    return _show(context, _look(context, [], every=True))


def _show(context: Context, found: list[Status | Listed]) -> int:
    if context.options.json:
        plain = [_plain(context.store, each) for each in found]
        if context.options.runs:
            for each, shown in zip(found, plain, strict=True):
                if isinstance(each, Listed):
                    shown["failed_runs"] = (
                        [] if each.damage else study_hook.registered().failures(context.store, each.run_id)
                    )
        console.result_json(plain)
    elif not found:
        console.note(f"no runs in {context.store.root}; start one: bareboat run train.py")
    else:
        _print(context, found)
    return _exit_code(context, found)


def _look(context: Context, named: list[str], *, every: bool = False) -> list[Status | Listed]:
    """The runs and studies as they are now, in the order of their creation: those that are named, `every` one
    or the newest."""
    from bareboat.runs import sweeps

    store = context.store
    names = named or _listed(store, None if every else _NEWEST)
    hook = study_hook.registered()
    studies = {name: hook.look(store, name) for name in names if hook.is_study(store, name)}
    # With several runs, a scheduler that does not answer must not hide the others.
    runs = [name for name in names if name not in studies]
    statuses = dict(
        zip(runs, sweeps.look(store, runs, must_answer=len(named) == 1 and bool(runs)), strict=True)
    )
    return [studies[name] if name in studies else _recorded(store, statuses[name]) for name in names]


def _listed(store: Store, most: int | None) -> list[str]:
    """So many of the newest runs and studies, or all; not what was stopped before it began."""
    from bareboat.runs import submission

    hook = study_hook.registered()
    each = (
        name
        for name in reversed(store.runs())
        if submission.is_submitted(store, name) or hook.is_study(store, name)
    )
    return [*itertools.islice(each, most)][::-1]


def _recorded(store: Store, status: Status) -> Status:
    """The status, marked as damaged where the run's record is."""
    from bareboat.runs import sweeps

    try:
        sweeps.records_of(store, status)
    except StoreError as error:
        reason = "; ".join(filter(None, (status.reason, error.message)))
        return structs.replace(status, reason=reason, damaged=True)
    return status


def _print(context: Context, found: list[Status | Listed]) -> None:
    """The list; a sweep that was named is shown point by point."""
    named = context.options.runs
    for line in run_list.lines(context.store, found, apart=bool(named), width=console.width()):
        console.result(line)
    if len(named) != 1:
        return
    if isinstance(found[0], Listed):
        if not found[0].damage:
            for line in study_hook.registered().failure_lines(context.store, found[0].run_id):
                console.result(line)
    else:
        details = run_list.RunDetails(context.store, found[0])
        for way in details.ways[0]:
            console.result(f"between nodes: {way.by} uses {way.way}")
        if (health := details.health) is not None and not health.marks:  # marks are in the list
            console.result(f"nodes: {health.text}")


def _exit_code(context: Context, found: list[Status | Listed]) -> int:
    if any(each.damage if isinstance(each, Listed) else each.damaged for each in found):
        return StoreError.code
    if len(context.options.runs) == 1 and not isinstance(found[0], Listed):
        return found[0].exit_code or (BareboatError.code if found[0].stuck else 0)
    return 0


def _is_over(each: Status | Listed) -> bool:
    return not each.is_measured if isinstance(each, Listed) else each.over or bool(each.stuck)


def _watch(context: Context) -> int:
    """Follow the runs until all ended. Exit like `run`; with 0 when the user stops it."""
    from bareboat.cli import screen

    named = [find(context, name) for name in context.options.runs]
    live = screen.is_possible() and not context.options.json
    watched = _Watched(context, named)
    try:
        if live:
            with screen.shown():
                ended = _draw_until_over(watched)
            _print(context, watched.found)
        else:
            ended = _print_changes(watched)
    except KeyboardInterrupt:
        ended = False
    except Terminated as stop:
        stop.add_note("the runs continue")
        raise
    if not ended:
        if not context.options.quiet:
            console.note("stopped watching; the runs continue")
        return 0
    return _exit_code(context, watched.found)


class _Watched:
    """The runs that are followed, and when to query them again."""

    def __init__(self, context: Context, named: list[str]) -> None:
        self.context, self._named = context, named
        self.found: list[Status | Listed] = []
        self._interval_s = context.options.interval or _INTERVAL_S
        self._outage = ""

    def look(self) -> float:
        """Query the runs; return how long to wait before the next query."""
        began = time.monotonic()
        try:
            self.found = _look(self.context, self._named, every=self.context.options.all)
            self._outage = ""
        except ToolError as error:
            if not self.found:
                raise
            self._outage = f"; {error.message}"
        took = time.monotonic() - began
        asked = [each for each in self.found if not isinstance(each, Listed) and not each.over]
        if any(not each.submission.supervisor for each in asked):
            return max(self._interval_s, _REST * took)
        return max(_HERE_S, took)

    @property
    def is_over(self) -> bool:
        return all(map(_is_over, self.found)) and not self._outage

    def lines(self, width: int) -> list[str]:
        store, apart = self.context.store, bool(self._named)
        return run_list.lines(store, self.found, apart=apart, width=width)

    def last_line(self, pause: float) -> str:
        return f"q: quit, the runs continue   every {pause:.0f} s{self._outage}"


def _draw_until_over(watched: _Watched) -> bool:
    """Draw the list every second; whether all runs ended before the user stopped it."""
    from bareboat.cli import screen

    while True:
        pause = watched.look()
        if watched.is_over:
            return True
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            screen.draw(watched.lines(console.size()[0]), watched.last_line(pause))
            if screen.quits_within(min(left, 1.0)):
                return False


def _print_changes(watched: _Watched) -> bool:
    """Print a line for each run now, and for each change of its state or reason."""
    from msgspec import to_builtins

    known: dict[str, tuple[str, str]] = {}
    context = watched.context
    while True:
        pause = watched.look()
        for each in _one_by_one(watched.found, apart=bool(context.options.runs)):
            row = run_list.row(each)
            more = (run_list.detail(context.store, each, apart=True), *run_list.ending_lines(each))
            now = (row[3], "; ".join(more).strip("; "))
            if known.get(row[0]) == now:
                continue
            known[row[0]] = now
            if context.options.json:
                console.json_line(to_builtins(_plain(context.store, each)))
            else:
                moment = time.strftime("%H:%M:%S")
                console.result("  ".join(filter(None, (moment, row[0], row[2], row[3], row[4], now[1]))))
        if watched.is_over:
            return True
        time.sleep(pause)


def _one_by_one(found: list[Status | Listed], *, apart: bool) -> list[Status | Listed]:
    """A sweep's points apart, where it was named."""
    shown: list[Status | Listed] = []
    for each in found:
        shown += (apart and not isinstance(each, Listed) and each.points) or (each,)
    return shown


def _plain(store: Store, each: Status | Listed) -> dict[str, Any]:
    if isinstance(each, Listed):
        return {
            "run_id": each.run_id,
            "kind": "study",
            "command": list(each.command),
            "host": each.host,
            "state": each.state,
            "runs_done": each.done,
            "runs": each.total,
            "jobs": each.jobs,
            "verdict": (each.verdict.verdict or None) if each.verdict else None,
            "sentence": each.verdict.sentence if each.verdict else "",
            "reason": each.damage,
            "damaged": bool(each.damage),
            "started_at_epoch_s": each.started_at_epoch_s,
        }
    of = run_list.point(store, each)
    more: dict[str, Any] = {} if of is None else {"index": of[1], "values": of[0].values(of[1])}
    if each.points:
        more = {"points": [_plain(store, point) for point in each.points]}
    details = run_list.RunDetails(store, each)
    ways, mark = details.ways
    return {
        **more,
        "run_id": each.submission.run_id,
        "kind": "sweep" if each.points else "run",
        "command": list(each.submission.command),
        "host": each.submission.host,
        "scheduler": each.submission.scheduler,
        "job_id": each.job_id,
        "state": each.state.value,
        "exit_code": each.exit_code,
        "reason": each.reason,
        "damaged": each.damaged,
        "end": each.end,
        "nodes": each.submission.nodes,
        "hosts": each.nodes,
        "starts": list(each.starts),
        "straggler": details.straggler,
        "submitted_at": each.submission.submitted_at,
        "transports": list(ways),
        "fabric_mark": mark,
        "world_mark": run_list.world(store, each),
        "health": details.health,
        "notification_failure": run_list.notification_failure(store, each),
    }
