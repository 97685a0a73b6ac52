"""Whether the job is watched, and how its stacks can be read."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from bareboat.model import Decision, Job, Site

PY_SPY = "py-spy"

#: A rank that buffers its output seems silent; and one whose stack nobody else can read prints it itself when
#: it gets SIGABRT.
#: https://docs.python.org/3/using/cmdline.html#envvar-PYTHONFAULTHANDLER
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


def environment(job: Job) -> Mapping[str, str]:
    """Additional variables for the ranks of a watched job."""
    return _ENVIRONMENT if job.scheduling.watchdog_s else {}


def choose_watchdog(job: Job, site: Site) -> tuple[str | UnsetType, tuple[Decision, ...]]:
    """The path of py-spy on the site; UNSET if it has none or the job is not watched."""
    if not job.scheduling.watchdog_s:
        return UNSET, ()
    found = site.other_tools.get(PY_SPY)
    how = f"the stacks of all ranks are kept first, by {found}"
    if found is None:
        how = (
            "the stacks of all ranks are kept first, by the node's py-spy, or without one by Python itself; "
            "`pip install py-spy` installs it"
        )
    decision = Decision(
        subject="watchdog",
        choice=f"{job.scheduling.watchdog_s} s",
        reason=f"asked for: the run ends with exit code 71 when no rank prints or reports anything for "
        f"so long; {how}",
    )
    return (UNSET if found is None else found), (decision,)
