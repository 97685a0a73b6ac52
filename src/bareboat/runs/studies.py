"""Studies among the runs of a store. The package of studies registers what lists and cancels them, so that
the commands for runs need not import it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from bareboat_images.store import Store

#: Registers itself when it is imported.
_MODULE = "bareboat_study.hook"


class Verdict(Struct, frozen=True, kw_only=True):
    """The verdict at the end of a study; "" where those of its comparisons differ. `runs`: of how many
    measured runs."""

    verdict: str
    sentence: str
    runs: int
    comparisons: int = 1


class Listed(Struct, frozen=True, kw_only=True):
    """A study in the list. `done`, `total`: runs, with the warm-up. `verdict`: None before the end."""

    run_id: str
    command: tuple[str, ...] = ()
    name: str = ""
    host: str = ""
    done: int = 0
    total: int = 0
    is_measured: bool = False
    verdict: Verdict | None = None
    started_at_epoch_s: int = 0
    changed_at_epoch_s: int = 0
    #: Of a study in a scheduler's jobs: how many of them wait and run, such as "1 running".
    jobs: str = ""
    #: Why its first run failed; "" where a run is complete or none failed.
    failure: str = ""
    #: Why it cannot be read; "" where it can.
    damage: str = ""

    @property
    def state(self) -> str:
        """In one word; the verdict of a complete study is beside it."""
        if self.damage:
            return "unknown"
        if self.done == self.total:
            return "complete"
        if self.jobs and "running" not in self.jobs:
            return "pending"
        if self.is_measured:
            return "measuring"
        return "failed" if self.failure else "stopped"


class Studies(Protocol):
    """What commands for runs ask about studies."""

    def is_study(self, store: Store, run_id: str) -> bool: ...

    def look(self, store: Store, run_id: str) -> Listed:
        """The study as it is now."""
        ...

    def failures(self, store: Store, run_id: str) -> list[str]:
        """A line for each failed run of a study. Raises StoreError."""
        ...

    def failure_lines(self, store: Store, run_id: str) -> list[str]:
        """The same for the terminal: the first ones, and where their output is."""
        ...

    def logs(self, store: Store, run_id: str) -> list[tuple[str, Path]]:
        """The names and output files of a study's failed runs, else of its newest run. Raises StoreError."""
        ...

    def jobs_of(self, store: Store, name: str) -> list[str]:
        """The runs of a name: of a study in a scheduler's jobs, its points with a job; else the run itself.

        Raises UsageError for a study without a job.
        """
        ...

    def is_queued(self, store: Store, name: str) -> bool:
        """Whether the name is a run that was submitted or started, or a study with a scheduler's job."""
        ...

    def live_jobs_of_image(self, store: Store, digest: str) -> list[str]:
        """The points, of any study, whose jobs wait or run with this image."""
        ...


_registered: list[Studies] = []


def register(studies: Studies) -> None:
    """Use these studies from now on."""
    _registered[:] = [studies]


def registered() -> Studies:
    """The studies, whose package is imported when it is first needed."""
    if not _registered:
        importlib.import_module(_MODULE)
    return _registered[0]
