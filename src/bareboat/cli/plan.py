"""bareboat plan: the decisions with their reasons, or the job script."""

from __future__ import annotations

import argparse

from msgspec import UNSET

from bareboat import render
from bareboat.cli import console
from bareboat.cli.common import (
    Context,
    add_at_once,
    add_common,
    add_engine,
    add_job,
    add_python,
    add_root,
    add_scheduling,
    add_trust,
    make_plan,
    prepare,
)
from bareboat.errors import StoreError, UsageError

EXAMPLE = "bareboat plan --script job.toml > job.sh && bash job.sh"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    parser.add_argument("--script", action="store_true", help="print the job script, in plain bash")
    add_engine(parser)
    add_scheduling(parser)
    add_at_once(parser)
    add_python(parser)
    add_root(parser)
    add_trust(parser)


def run(context: Context) -> int:
    if context.options.script and context.options.json:
        raise UsageError("--script and --json exclude each other", remedy="leave one of them out")
    job, site, image = prepare(context)
    if context.options.script and image.site_layer is not None and not image.site_layer.made:
        raise StoreError(
            "there is no script before the site layer is made: it leads to the image's files",
            remedy=context.store.how_to_get(image),
        )
    plan = make_plan(context, job, image, site)
    if context.options.script:
        # A container can write to the working folder; the store is kept from it.
        runs = None if plan.image_digest is None else str(context.store.own / "by-hand")
        console.script(render.script(plan, runs=runs))
        if job.sweep is not UNSET and not context.options.quiet:
            console.note("its points are in a table beside it, which run and submit write")
    elif context.options.json:
        console.result_json(render.shown(plan))
    else:
        console.result(render.text(plan))
    return 0
