"""bareboat plan: show the decisions with their reasons, or the job script."""

from __future__ import annotations

import argparse

from msgspec import UNSET

from bareboat import registry, render
from bareboat.cli import console
from bareboat.cli.common import (
    Context,
    add_at_once,
    add_common,
    add_engine,
    add_environment,
    add_job,
    add_scheduling,
)
from bareboat.cli.job import note_ignored, read_job, show_plan
from bareboat.session import Purpose, planning, preparation
from bareboat_base.errors import StoreError, UsageError

EXAMPLE = (
    "bareboat plan job.toml\n"
    "  bareboat plan --prepare --script job.toml > job.sh && bash job.sh\n"
    "  bareboat plan job.toml --for galileo.json juwels.json"
)


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    parser.add_argument("--script", action="store_true", help="print the job script (bash)")
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="capture or pull the image first, and unpack it as the script needs it",
    )
    parser.add_argument(
        "--for",
        dest="sites",
        metavar="SITE",
        action="append",
        help="plan for this site instead: a file of doctor --export, or SCHEDULER-PARTITION in the store "
        "(repeatable)",
    )
    add_engine(parser)
    add_scheduling(parser)
    add_at_once(parser)
    add_environment(parser)


def run(context: Context) -> int:
    if context.options.script and context.options.json:
        raise UsageError("--script and --json cannot be used together", remedy="remove one of them")
    if context.options.sites:
        from bareboat.cli import plan_sites

        return plan_sites.run(context)
    session = context.session
    prepared = preparation.prepare(session, read_job(context), Purpose.PLAN)
    job, image = prepared.job, prepared.image
    if context.options.script and image.site_layer is not None and not image.site_layer.made:
        raise StoreError(
            "no script without the site layer: the script needs its path",
            remedy=context.store.how_to_get(image),
        )
    plan = planning.plan(session, prepared)
    if plan.scheduler == registry.HERE:
        note_ignored(context)
    if context.options.script and plan.missing is not UNSET:
        raise StoreError(
            "no script yet: it needs the image's files in the store",
            context="\n".join(f"missing: {each}" for each in plan.missing),
            remedy="bareboat plan --prepare --script …   # makes them first",
        )
    if context.options.script:
        # The container can write to the working directory, so it must not hold the store.
        runs = None if plan.image_digest is None else str(context.store.own / "by-hand")
        console.script(render.script(plan, runs=runs))
        if job.sweep is not None and not context.options.quiet:
            console.note("the script reads the points from a table that run and submit write")
    else:
        show_plan(context, plan)
    return 0
