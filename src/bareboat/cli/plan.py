"""bareboat plan: show the decisions with their reasons, or the job script."""

from __future__ import annotations

import argparse
from typing import Any

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
from bareboat.cli.folding import folded
from bareboat.cli.job import note_ignored, read_job, show_plan
from bareboat.session import Purpose, planning, preparation
from bareboat.session.planning import Outlook
from bareboat_base.errors import PlanError, StoreError, UsageError
from bareboat_base.printable import counted

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
        return _run_for_sites(context)
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


def _run_for_sites(context: Context) -> int:
    """One job at several sites, as a table. Exit with 0 when it runs at every site, else with the code of a
    refused plan."""
    from bareboat.session import sites

    options = context.options
    for flag in ("script", "prepare"):
        if getattr(options, flag):
            raise UsageError(f"--{flag} and --for cannot be used together", remedy="remove one of them")
    session = context.session
    facts = [sites.named(session, text) for text in options.sites]
    job = read_job(context._replace(settings=context.settings.elsewhere()))
    outlooks = [planning.outlook(session, job, each) for each in facts]
    if options.json:
        console.result_json([_site_document(each) for each in outlooks])
    else:
        console.result(folded(_sites_text(outlooks), console.width()))
    return PlanError.code if any(isinstance(each.result, PlanError) for each in outlooks) else 0


def _site_row(outlook: Outlook) -> tuple[str, str, str]:
    result = outlook.result
    if isinstance(result, PlanError):
        return outlook.site, "refused", result.message.splitlines()[0]
    count = len(result.warnings)
    scheduler = registry.scheduler(result.scheduler)
    where = "on its own" if scheduler.IS_LOCAL else f"under {scheduler.TITLE}"
    return (
        outlook.site,
        f"runs with {counted(count, 'warning')}" if count else "runs",
        f"{result.engine}, started by {result.launcher}, {where}",
    )


def _sites_text(outlooks: list[Outlook]) -> str:
    lines = [console.table([("site", "result", "how, or why not"), *map(_site_row, outlooks)])]
    for each in outlooks:
        if isinstance(each.result, PlanError):
            notes = [f"  {note}" for note in each.result.__notes__]
        else:
            notes = [f"  warning: {warning}" for warning in each.result.warnings]
        if notes:
            lines += ["", console.bold(each.site), *notes]
    return "\n".join(lines)


def _site_document(outlook: Outlook) -> dict[str, Any]:
    result = outlook.result
    if isinstance(result, PlanError):
        about = {"reason": result.message, "context": result.context or None, "remedy": result.remedy or None}
        return {"site": outlook.site, "runs": False, "warnings": [], **about, "plan": None}
    about = dict.fromkeys(("reason", "context", "remedy"))
    warnings = list(result.warnings)
    return {"site": outlook.site, "runs": True, "warnings": warnings, **about, "plan": render.shown(result)}
