"""bareboat status: show runs, submitted and on this machine, and studies."""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bareboat.cli import console, run_list
from bareboat.cli.common import Context, add_common
from bareboat.model import JobState
from bareboat.runs.studies import Listed
from bareboat_base.errors import BareboatError, StoreError, Terminated, ToolError, UsageError

if TYPE_CHECKING:
    from bareboat.runs.state import Status
    from bareboat_images.store import Store

EXAMPLE = "bareboat status"
#: The number of newest runs that are listed without --all.
_NEWEST = 20


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="runs or job names (default: the newest)")
    parser.add_argument("--all", action="store_true", help="list all runs, not only the newest")


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="run, or job name for its newest run (default: the newest run)"
    )


def newest(context: Context, *, studies: bool = False) -> str:
    """The named run, or a job's newest run, else the newest run, with a note on stderr; with `studies` also
    a study."""
    from bareboat.runs import submission

    is_submitted = functools.partial(submission.is_submitted, context.store)
    return find(context, getattr(context.options, "run", None), None if studies else is_submitted)


def find(context: Context, name: str | None, accepts: Callable[[str], bool] | None = None) -> str:
    """The run of this name, with a note on stderr where it is the name of a job: its newest run, of those
    that `accepts` takes if there is one. None: the newest of all."""
    from bareboat.runs import submission

    if name is None:
        runs = [*filter(accepts, _listed(context.store, None))]
        if not runs:
            raise UsageError("no runs yet", remedy="bareboat run job.toml, or bareboat submit job.toml")
        console.note(f"run {runs[-1]} (the newest)")
        return runs[-1]
    found = submission.find(context.store, name, accepts)
    if found != name and not context.options.quiet:
        console.note(f"run {found} (the newest of {name})")
    return found


def run(context: Context) -> int:
    """Exit with 0; for one named run that ended, with its exit code; with 4 where a run is damaged."""
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
            from bareboat_study import matrix

            for each, shown in zip(found, plain, strict=True):
                if isinstance(each, Listed):
                    failures = [] if each.damage else matrix.failures(context.store, each.run_id)
                    shown["failed_runs"] = [failure.text for failure in failures]
        console.result_json(plain)
    elif not found:
        console.note(f"no runs in {context.store.root}; start one: bareboat run train.py")
    else:
        _print(context, found)
    return _exit_code(context, found)


def _look(context: Context, named: list[str], *, every: bool = False) -> list[Status | Listed]:
    """The runs and studies as they are now, in the order of their creation: those that are named, `every` one
    or the newest."""
    from bareboat.runs import submission, sweeps
    from bareboat_study import listing

    store = context.store
    names = named or _listed(store, None if every else _NEWEST)
    studies = {name: listing.look(store, name) for name in names if listing.is_study(store, name)}
    # A scheduler that does not answer must not hide what the files show.
    runs = [name for name in names if name not in studies]
    if len(named) == 1 and runs:
        submission.read(store, runs[0])  # or raise
    statuses = dict(zip(runs, sweeps.look(store, runs, must_answer=False), strict=True))
    return [studies[name] if name in studies else _recorded(store, statuses[name]) for name in names]


def _listed(store: Store, most: int | None) -> list[str]:
    """So many of the newest runs and studies, or all; not what was stopped before it began."""
    from bareboat.runs import submission
    from bareboat_study import listing

    each = (
        name
        for name in reversed(store.runs())
        if submission.is_submitted(store, name) or listing.is_study(store, name)
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
        from bareboat_study import matrix, validity

        name = found[0].run_id
        if not found[0].damage:
            for line in validity.failure_lines(name, matrix.failures(context.store, name), most=10):
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
        if found[0].state is JobState.UNKNOWN:
            return ToolError.code
        return found[0].shell_code or (BareboatError.code if found[0].stuck else 0)
    return 0


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
        "submitted_at": each.submission.submitted_at,
        "transports": list(ways),
        "fabric_mark": mark,
        "world_mark": run_list.world(store, each),
        "discarded": run_list.discarded(store, each),
        "health": details.health,
    }
