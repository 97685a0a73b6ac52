"""Commands that query a scheduler, or cancel a job."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bareboat.model import Outcome
from bareboat.schedulers import inherited
from bareboat_base import execute

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
