"""Commands that query a scheduler, or cancel a job; and the cluster of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bareboat import registry
from bareboat.model import Outcome, Submission
from bareboat.schedulers import inherited
from bareboat_base import execute
from bareboat_base.errors import BareboatError

_WATCH = execute.Watch()


def run(
    argv: Sequence[str],
    *,
    within: execute.Deadline | None = None,
    timeout_s: float | None = None,
    watch: execute.Watch = _WATCH,
) -> Outcome:
    """`execute.run`, in an environment without the user's settings of what a scheduler's commands print."""
    variables = inherited.for_queries(os.environ)
    return execute.run(argv, environment=variables, within=within, timeout_s=timeout_s, watch=watch)


#: Scheduler -> the cluster of this machine, once known: clusters with one store may give the same number to
#: different jobs.
_known: dict[str, str] = {}


def other_cluster(made: Submission, within: execute.Deadline | None = None) -> str:
    """Why this machine's scheduler knows nothing of a run; "" for its own runs, and when that is unknown.
    Raises ToolError when the scheduler does not answer."""
    query = registry.scheduler(made.scheduler).CLUSTERS if made.cluster else None
    if query is None:
        return ""
    if not _known.get(made.scheduler):
        _known[made.scheduler] = query.name(run(query.argv, within=within))
    here = _known[made.scheduler]
    if here in ("", made.cluster):
        return ""
    return f"it was submitted to the cluster {made.cluster}, and this machine belongs to {here}: ask there"


def check_cluster(made: Submission) -> None:
    """Raise BareboatError for a run of another cluster, where its job ID may be that of another job."""
    if reason := other_cluster(made):
        raise BareboatError(
            f"{made.run_id} is not a run of this cluster",
            context=reason,
            remedy=f"run the same command on a login node of {made.cluster}",
        )
