"""bareboat cancel: cancel pending or running runs."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.cli.status import find
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat.runs.state import Status

EXAMPLE = "bareboat cancel digits-20261120-101500"

_MOST_NAMED = 5


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="runs or job names")
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat import registry
    from bareboat.runs import sweeps
    from bareboat_study import queue

    if not context.options.runs:
        raise _unnamed(context)
    has_job = functools.partial(queue.is_queued, context.store)
    named = [find(context, name, has_job) for name in context.options.runs]
    runs = [job for name in named for job in queue.jobs_of(context.store, name)]
    found = sweeps.look(context.store, runs)
    ended: list[Status] = []
    show = context.progress.note if context.options.json else console.result
    for status in found:
        run_id = status.submission.run_id
        if status.over:
            how = f" with exit code {status.result}" if status.result.isdecimal() else f": {status.result}"
            context.progress.note(f"{run_id} already finished{how}")
            others = [] if run_id in context.options.runs else _unfinished(context, status.submission.name)
            if others:
                context.progress.note(f"not finished: {others[0]}; bareboat cancel {others[0]}")
        elif context.options.dry_run:
            for each in [status] if status.submission.job_id else status.points or [status]:
                made = each.submission
                argv = registry.scheduler(made.scheduler).cancel(each.job_id or "?")
                how = "SIGTERM to its job script" if made.supervisor else " ".join(argv)
                show(f"would cancel {made.run_id}: {how}")
                ended.append(each)
        else:
            sweeps.cancel(context.store, run_id)
            ended.append(status)
            show(f"requested cancellation of {run_id}")
    if context.options.json:
        jobs = [(each.submission, each.job_id) for each in ended]
        console.result_json(
            [{"run_id": made.run_id, "scheduler": made.scheduler, "job_id": job_id} for made, job_id in jobs]
        )
    return 0


def _unfinished(context: Context, job: str | None = None) -> list[str]:
    """The runs that could be cancelled, the newest first. `job`: those of its name."""
    from bareboat.runs import submission, sweeps

    found = sweeps.look(context.store, submission.submitted(context.store), must_answer=False)
    live = [each.submission for each in reversed(found) if not each.over]
    return [each.run_id for each in live if job in (None, each.name)]


def _unnamed(context: Context) -> UsageError:
    """The error of a command without a name, with the newest runs that could be cancelled."""
    live = _unfinished(context)
    more = f" and {len(live) - _MOST_NAMED} more" if len(live) > _MOST_NAMED else ""
    return UsageError(
        "cancel needs the name of a run",
        context=f"not finished: {', '.join(live[:_MOST_NAMED])}{more}" if live else "no run is unfinished",
        remedy=f"bareboat cancel {live[0]}" if live else "bareboat status",
    )
