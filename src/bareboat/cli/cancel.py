"""bareboat cancel: cancel pending or running runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.cli.status import find, newest

if TYPE_CHECKING:
    from bareboat.model import Submission

EXAMPLE = "bareboat cancel digits-20261120-101500"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="runs or job names (default: the newest)")
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat import registry
    from bareboat.runs import studies, sweeps

    hook = studies.registered()

    def has_job(run: str) -> bool:
        return hook.is_queued(context.store, run)

    named = [find(context, name, has_job) for name in context.options.runs] or [newest(context)]
    runs = [job for name in named for job in hook.jobs_of(context.store, name)]
    found = sweeps.look(context.store, runs)
    ended: list[Submission] = []
    told: list[str] = []
    for status in found:
        run_id = status.submission.run_id
        if status.over:
            code = "" if status.exit_code is None else f" with exit code {status.exit_code}"
            context.progress.note(f"{run_id} already finished{code}")
        elif context.options.dry_run:
            for each in [status] if status.submission.job_id else status.points or [status]:
                made = each.submission
                argv = registry.scheduler(made.scheduler).cancel(made.job_id or "?")
                how = "SIGTERM to its job script" if made.supervisor else " ".join(argv)
                told.append(f"would cancel {made.run_id}: {how}")
                ended.append(made)
        else:
            sweeps.cancel(context.store, run_id)
            ended.append(status.submission)
            told.append(f"requested cancellation of {run_id}")
    if context.options.json:
        console.result_json(
            [{"run_id": each.run_id, "scheduler": each.scheduler, "job_id": each.job_id} for each in ended]
        )
    for line in told:
        if context.options.json:
            context.progress.note(line)
        else:
            console.result(line)
    return 0
