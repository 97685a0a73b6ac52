"""bareboat run: run one job now, and record it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from bareboat import registry
from bareboat.cli import console, wait
from bareboat.cli.common import (
    Context,
    add_common,
    add_dry_run,
    add_engine,
    add_environment,
    add_job,
    add_queue,
)
from bareboat.cli.job import note_ignored, read_job, show_plan, show_warnings
from bareboat.session import Purpose, planning, preparation
from bareboat_base.errors import ProgramError

if TYPE_CHECKING:
    from bareboat.model import Plan, Record, Site, Submission
    from bareboat.model.sweep import Sweep
    from bareboat.schedulers import Allocation

EXAMPLE = "bareboat run examples/digits.toml\n  bareboat run --ranks-per-node 2 train.py"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    add_queue(parser)
    add_engine(parser)
    add_environment(parser)
    add_dry_run(parser)


def run(context: Context) -> int:
    """Exit with the code of the job's first rank that failed; for a sweep, with the code of the first point
    that failed."""
    try:
        session = context.session
        prepared = preparation.prepare(session, read_job(context), Purpose.RUN)
        plan, site = planning.plan(session, prepared), prepared.site
    except ProgramError as error:  # the exit code that a shell gives
        error.code = error.status
        raise
    if plan.scheduler == registry.HERE:
        note_ignored(context)
    if context.options.dry_run:
        show_plan(context, plan)
        return 0
    show_warnings(plan)
    if plan.job.sweep is not None:
        return _run_sweep(context, plan, plan.job.sweep, site)
    if plan.scheduler != registry.HERE:
        return _run_in_allocation(context, plan, site)
    from bareboat.runs import local

    return _show(context, local.run(context.store, plan, site, stdout_apart=context.options.json))


def _show(context: Context, record: Record) -> int:
    """Show the end of a run; return its exit code."""
    if context.options.json:
        console.result_json(wait.as_json(record))
    elif not context.options.quiet:
        for mark in record.health_marks:
            console.note(f"warning: {mark}")
        console.note(
            f"run {record.study}: exit code {record.exit_code} after {record.wall_text}; "
            f"record in {context.store.run(record.study)}"
        )
        console.note_end(record.end, otherwise=record.ended_because)
    return record.exit_code


def _run_in_allocation(context: Context, plan: Plan, site: Site) -> int:
    """Run the job script on the nodes of the scheduler job in which this command was called."""
    from bareboat.runs import allocation

    def started(made: Submission, found: Allocation) -> None:
        console.note(
            f"run {made.run_id} on {made.nodes} of the {found.nodes} nodes of {found.scheduler} "
            f"job {found.job_id}"
        )

    record = allocation.run(
        context.store, plan, site, environment=os.environ, started=started, stdout_apart=context.options.json
    )
    return _show(context, record)


def _run_sweep(context: Context, plan: Plan, points: Sweep, site: Site) -> int:
    from bareboat.model import sweep
    from bareboat.runs import local

    def each(index: int) -> None:
        console.note(f"point {index} of {len(points.points)}: {_shown(sweep.point_text(points, index))}")

    run_id, records = local.run_sweep(context.store, plan, site, each=each, stdout_apart=context.options.json)
    stopped = local.is_interrupted(context.store, records[-1].study)
    code = next((record.exit_code for record in records if record.exit_code), 0)
    code = code or (local.INTERRUPTED if stopped else 0)
    if context.options.json:
        console.result_json([wait.as_json(record) for record in records])
    elif not context.options.quiet:
        rows = [("point", "exit", "time", "")]
        for index in range(len(points.points)):
            record = records[index] if index < len(records) else None
            ended = ("not run", "") if record is None else (str(record.exit_code), record.wall_text)
            rows.append((str(index), *ended, _shown(sweep.point_text(points, index))))
        console.note(console.table(rows, right=(0, 1, 2)))
        console.note(f"sweep {run_id}: exit code {code}; records in {context.store.run(run_id)}/points")
    return code


def _shown(text: str) -> str:
    """The text on one line."""
    return text.encode("unicode_escape").decode()
