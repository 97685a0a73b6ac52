"""bareboat plan --for: one job at several sites, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bareboat import registry
from bareboat.cli import console
from bareboat.cli.folding import folded
from bareboat.cli.job import read_job
from bareboat_base.errors import PlanError, UsageError
from bareboat_base.printable import counted

if TYPE_CHECKING:
    from bareboat.cli.common import Context
    from bareboat.session.elsewhere import Outlook


def run(context: Context) -> int:
    """Exit with 0 when the job runs at every site, else with the code of a refused plan."""
    from bareboat.session import elsewhere, sites

    options = context.options
    for flag in ("script", "prepare"):
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
    return PlanError.code if any(isinstance(each.result, PlanError) for each in outlooks) else 0


def _row(outlook: Outlook) -> tuple[str, str, str]:
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


def _text(outlooks: list[Outlook]) -> str:
    lines = [console.table([("site", "result", "how, or why not"), *map(_row, outlooks)])]
    for each in outlooks:
        if isinstance(each.result, PlanError):
            notes = [f"  {note}" for note in each.result.__notes__]
        else:
            notes = [f"  warning: {warning}" for warning in each.result.warnings]
        if notes:
            lines += ["", console.bold(each.site), *notes]
    return "\n".join(lines)


def _document(outlook: Outlook) -> dict[str, Any]:
    from bareboat import render

    result = outlook.result
    if isinstance(result, PlanError):
        about = {"reason": result.message, "context": result.context or None, "remedy": result.remedy or None}
        return {"site": outlook.site, "runs": False, "warnings": [], **about, "plan": None}
    about = dict.fromkeys(("reason", "context", "remedy"))
    warnings = list(result.warnings)
    return {"site": outlook.site, "runs": True, "warnings": warnings, **about, "plan": render.shown(result)}
