"""The user's command for the end of the run, as bash."""

from __future__ import annotations

from msgspec import UNSET

from bareboat.model import Plan
from bareboat.render import words
from bareboat.render.pieces import piece


def command(plan: Plan) -> str:
    """The lines of the first node; "" for a job without a command."""
    job = plan.job
    if job.notify is UNSET or isinstance(job.notify, str):
        return ""
    return words.values(
        notification=job.notify,
        notification_folder=job.workdir or "",
        notification_points=0 if job.sweep is UNSET else len(job.sweep.points),
    ) + piece("notification")
