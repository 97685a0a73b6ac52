"""What the launcher's commands for runs ask about studies: status, logs, cancel, image rm.

What needs the scheduler is imported when it is used: `status` starts often.
"""

from __future__ import annotations

from pathlib import Path

from bareboat_images.store import Store
from bareboat_study.listing import is_study as is_study
from bareboat_study.listing import look as look


def failures(store: Store, run_id: str) -> list[str]:
    """A line for each failed run of a study. Raises StoreError."""
    from bareboat_study import matrix

    return [each.text for each in matrix.failures(store, run_id)]


def failure_lines(store: Store, run_id: str) -> list[str]:
    """The same for the terminal: the first ones, and where their output is."""
    from bareboat_study import failed_runs, matrix

    return list(failed_runs.lines(run_id, matrix.failures(store, run_id), most=10))


def logs(store: Store, run_id: str) -> list[tuple[str, Path]]:
    """The names and output files of a study's failed runs, else of its newest run. Raises StoreError."""
    from bareboat_study import matrix

    return matrix.logs(store, run_id)


def jobs_of(store: Store, name: str) -> list[str]:
    """The runs of a name: of a study in a scheduler's jobs, its points with a job; else the run itself.
    Raises UsageError for a study without a job."""
    from bareboat_study import queue

    return queue.jobs_of(store, name)


def is_queued(store: Store, name: str) -> bool:
    """Whether the name is a run that was submitted or started, or a study with a scheduler's job."""
    from bareboat_study import queue

    return queue.is_queued(store, name)


def live_jobs_of_image(store: Store, digest: str) -> list[str]:
    """The points, of any study, whose jobs wait or run with this image."""
    from bareboat_study import queue

    return queue.live_jobs_of_image(store, digest)
