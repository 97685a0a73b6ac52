"""bareboat plan --for: one job at several sites, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bareboat import registry
from bareboat.cli import console
from bareboat.cli.folding import folded
from bareboat.cli.job import read_job
from bareboat_base.errors import PlanError, UsageError

if TYPE_CHECKING:
    from bareboat.cli.common import Context
    from bareboat.session.elsewhere import Outlook


def run(context: Context) -> int:
    """Exit with 0 when the job runs at every site, else with the code of a refused plan."""
    from bareboat.session import elsewhere, sites

    options = context.options
    for flag in ("script", "prepare", "why"):
        if getattr(options, flag):
            raise UsageError(f"--{flag} and --for cannot be used together", remedy="remove one of them")
    session = context.session
    facts = [sites.named(session, text) for text in options.sites]
    job = read_job(context._replace(settings=context.settings.elsewhere()))
    outlooks = [elsewhere.look(session, job, each) for each in facts]
    if options.json:
        console.result_json([_document(each) for each in outlooks])
    else:
        console.result(folded(_text(outlooks), console.width()))
    return 0 if all(each.error is None for each in outlooks) else PlanError.code


def _result(outlook: Outlook) -> str:
    if outlook.plan is None:
        return "refused"
    count = len(outlook.plan.warnings)
    return f"runs with {count} warning{'' if count == 1 else 's'}" if count else "runs"


def _how(outlook: Outlook) -> str:
    plan = outlook.plan
    if plan is None:
        return outlook.error.message if outlook.error is not None else ""
    scheduler = registry.scheduler(plan.scheduler)
    where = "on its own" if scheduler.IS_LOCAL else f"under {scheduler.TITLE}"
    return f"{plan.engine}, started by {plan.launcher}, {where}"


def _text(outlooks: list[Outlook]) -> str:
    rows = [("site", "result", "how, or why not")]
    rows += [(each.site, _result(each), _how(each).splitlines()[0]) for each in outlooks]
    lines = [console.table(rows)]
    for each in outlooks:
        notes = [f"  warning: {warning}" for warning in each.plan.warnings] if each.plan is not None else []
        if each.error is not None:
            notes = [f"  {each.error.context}"] if each.error.context else []
            notes += [f"  try: {each.error.remedy}"] if each.error.remedy else []
        if notes:
            lines += ["", console.bold(each.site), *notes]
    return "\n".join(lines)


def _document(outlook: Outlook) -> dict[str, Any]:
    from bareboat import render

    plan, error = outlook.plan, outlook.error
    return {
        "site": outlook.site,
        "runs": plan is not None,
        "warnings": [] if plan is None else list(plan.warnings),
        "reason": None if error is None else error.message,
        "context": (error.context or None) if error is not None else None,
        "remedy": (error.remedy or None) if error is not None else None,
        "plan": None if plan is None else render.shown(plan),
    }
