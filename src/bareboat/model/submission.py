"""The submission: what was handed to a scheduler, and what that says of it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from bareboat.fabric.facts import FabricWatch


class JobState(StrEnum):
    """What a scheduler says of a job, in words that all have."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    NODE_FAIL = "node failed"
    OUT_OF_MEMORY = "out of memory"
    UNKNOWN = "unknown"

    @property
    def over(self) -> bool:
        """The scheduler will not run it (again)."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN)


class QueueEntry(Struct, frozen=True, kw_only=True):
    """What a scheduler says of one job. `reason`: its own words, why it waits or how it ended. `signal`: the
    number of the signal that ended it, 0 when it names none."""

    job_id: str
    state: JobState
    reason: str = ""
    nodes: str = ""
    signal: int = 0


class Mark(Struct, frozen=True, kw_only=True):
    """A line that a scheduler itself writes into the output of a job that it ends: a pattern, and what it
    stands for."""

    pattern: str
    state: JobState


class Submission(Struct, frozen=True, kw_only=True):
    """What was handed to a scheduler, kept beside the run. `job_id`: None until the scheduler gave one."""

    run_id: str
    scheduler: str
    job_id: str | None
    name: str
    nodes: int
    world_size: int
    engine: str
    submitted_at: str
    plan_digest: str
    image_digest: str | None
    site_digest: str
    walltime_s: int | None = None
    #: Of a sweep, whose points are runs of their own; 0: it is none.
    points: int = 0
    fabric: FabricWatch | None = None
