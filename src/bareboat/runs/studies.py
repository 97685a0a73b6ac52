"""Studies in the list of runs, as the package of studies finds them (`bareboat_study.listing`)."""

from __future__ import annotations

from msgspec import Struct


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
