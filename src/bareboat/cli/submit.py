"""bareboat submit: submit a job."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bareboat.cli import console, suggestions
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
from bareboat_base.errors import BareboatError, PlanError, UsageError

if TYPE_CHECKING:
    from bareboat.model import Job, Submission

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
        help="like --wait, and show the place in the queue, the start and the output",
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
        if words:
            _refuse_here(context, job)
        here = suggestions.joined(["bareboat", "run", *words])
        raise error.but(remedy=f"{here}   # on this machine" if words else "") from None
    plan = planning.plan(session, prepared)
    if context.options.dry_run:
        show_plan(context, plan)
        return 0
    show_warnings(context, plan)
    made = creation.submit(context.store, plan, prepared.site)
    if context.options.watch:
        from bareboat.cli import following

        _tell(context, made)
        return following.until_over(context, made.run_id)
    if context.options.wait:
        from bareboat.cli.wait import until_over

        return until_over(context, made.run_id)
    if context.options.json:
        console.result_json(made)
    else:
        console.result(made.run_id)
        _tell(context, made)
        if not context.options.quiet:
            console.note(f"  next: bareboat logs -f, bareboat wait, bareboat cancel {made.run_id}")
    return 0


def _refuse_here(context: Context, job: Job) -> None:
    """Raise UsageError or PlanError for a mistake in the job, for which `bareboat run` would refuse it."""
    import msgspec

    session = msgspec.structs.replace(context.session, looks=True)
    try:
        planning.plan(session, preparation.prepare(session, job, Purpose.PLAN))
    except BareboatError as error:  # another than these is such as an image that is not here yet
        if isinstance(error, UsageError | PlanError) and not isinstance(error, sites.NoSchedulerError):
            raise


def _tell(context: Context, made: Submission) -> None:
    """Note the job ID."""
    from bareboat import registry

    if not context.options.quiet:
        points = f", {made.points} points" if made.points else ""
        jobs = "one job for each point" if made.job_id is None else f"job {made.job_id}{points}"
        console.note(f"submitted to {registry.scheduler(made.scheduler).TITLE} as {jobs}")
