"""bareboat submit: submit a job."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import (
    Context,
    add_at_once,
    add_common,
    add_dry_run,
    add_engine,
    add_environment,
    add_job,
    add_scheduling,
)
from bareboat.cli.job import read_job, show_plan, show_warnings, words_of_run
from bareboat.session import Purpose, planning, preparation, sites
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat.model import Submission

EXAMPLE = "bareboat submit examples/digits.toml -p gpu\n  bareboat submit -N 2 -t 2h30m train.py"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    add_engine(parser)
    add_scheduling(parser)
    add_at_once(parser)
    add_environment(parser)
    add_dry_run(parser)
    parser.add_argument("--wait", action="store_true", help="wait for the run and exit with its exit code")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="like --wait, and show the output",
    )


def run(context: Context) -> int:
    from bareboat.runs import creation

    if context.options.watch and context.options.json:
        raise UsageError("--watch shows the output and has no JSON", remedy="--wait --json")
    session = context.session
    job = read_job(context)
    try:
        prepared = preparation.prepare(session, job, Purpose.SUBMIT)
    except sites.NoSchedulerError as error:
        words = words_of_run(context.options) if job.topology.nodes == 1 else []
        here = shlex.join(["bareboat", "run", *words])
        raise error.but(remedy=f"{here}   # on this machine" if words else "") from None
    plan = planning.plan(session, prepared)
    if context.options.dry_run:
        show_plan(context, plan)
        return 0
    show_warnings(plan)
    made = creation.submit(context.store, plan, prepared.site)
    if context.options.watch:
        from bareboat.cli import logs
        from bareboat.runs import submission

        _tell(made)
        if not made.points:  # the points of a sweep print at the same time: each has its own log
            logs.follow(context, made.run_id, [submission.output_log(context.store, made.run_id)])
    if context.options.watch or context.options.wait:
        from bareboat.cli import wait

        return wait.until_over(context, made.run_id)
    if context.options.json:
        console.result_json(made)
    else:
        console.result(made.run_id)
        _tell(made)
        console.note(f"  next: bareboat logs -f, bareboat wait, bareboat cancel {made.run_id}")
    return 0


def _tell(made: Submission) -> None:
    """Note the job ID."""
    from bareboat import registry

    points = f", {made.points} points" if made.points else ""
    jobs = "one job for each point" if made.job_id is None else f"job {made.job_id}{points}"
    console.note(f"submitted to {registry.scheduler(made.scheduler).TITLE} as {jobs}")
