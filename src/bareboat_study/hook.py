"""Registers studies with the commands for runs: status, cancel, image rm."""

from __future__ import annotations

from pathlib import Path

from bareboat.runs import studies
from bareboat.runs.studies import Listed
from bareboat_images.store import Store
from bareboat_study import listing

#: Of the failed runs of a study, on the terminal.
_MOST_FAILURES = 10


class Hook:
    """The studies of a store. What needs the scheduler is imported when it is used: `status` starts often."""

    def is_study(self, store: Store, run_id: str) -> bool:
        return listing.is_study(store, run_id)

    def look(self, store: Store, run_id: str) -> Listed:
        return listing.look(store, run_id)

    def failures(self, store: Store, run_id: str) -> list[str]:
        from bareboat_study import matrix

        return [each.text for each in matrix.failures(store, run_id)]

    def failure_lines(self, store: Store, run_id: str) -> list[str]:
        from bareboat_study import failed_runs, matrix

        return list(failed_runs.lines(run_id, matrix.failures(store, run_id), most=_MOST_FAILURES))

    def logs(self, store: Store, run_id: str) -> list[tuple[str, Path]]:
        from bareboat_study import matrix

        return matrix.logs(store, run_id)

    def jobs_of(self, store: Store, name: str) -> list[str]:
        from bareboat_study import queue

        return queue.jobs_of(store, name)

    def is_queued(self, store: Store, name: str) -> bool:
        from bareboat_study import queue

        return queue.is_queued(store, name)

    def live_jobs_of_image(self, store: Store, digest: str) -> list[str]:
        from bareboat_study import queue

        return queue.live_jobs_of_image(store, digest)


studies.register(Hook())
