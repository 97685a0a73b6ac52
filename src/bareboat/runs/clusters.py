"""The cluster of a run: clusters with one store may give the same number to different jobs."""

from __future__ import annotations

from bareboat import registry
from bareboat.model import Submission
from bareboat.runs import queries
from bareboat_base import execute
from bareboat_base.errors import BareboatError

#: Scheduler -> the cluster of this machine, once known.
_known: dict[str, str] = {}


def elsewhere(made: Submission, within: execute.Deadline | None = None) -> str:
    """Why this machine's scheduler knows nothing of a run; "" for its own runs, and when that is unknown.
    Raises ToolError when the scheduler does not answer."""
    query = registry.scheduler(made.scheduler).CLUSTERS if made.cluster else None
    if query is None:
        return ""
    if not _known.get(made.scheduler):
        _known[made.scheduler] = query.name(queries.run(query.argv, within=within))
    here = _known[made.scheduler]
    if here in ("", made.cluster):
        return ""
    return f"it was submitted to the cluster {made.cluster}, and this machine belongs to {here}: ask there"


def check(made: Submission) -> None:
    """Raise BareboatError for a run of another cluster, where its job ID may be that of another job."""
    if reason := elsewhere(made):
        raise BareboatError(
            f"{made.run_id} is not a run of this cluster",
            context=reason,
            remedy=f"run the same command on a login node of {made.cluster}",
        )
