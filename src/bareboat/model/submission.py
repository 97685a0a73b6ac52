"""The submission of a run, and the scheduler's report about it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from bareboat.model.fabric import FabricWatch


class JobState(StrEnum):
    """A scheduler's state of a job, in common terms."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    NODE_FAIL = "node failed"
    OUT_OF_MEMORY = "out of memory"
    #: It waited for a job that failed, and will never start.
    DEPENDENCY = "dependency failed"
    UNKNOWN = "unknown"
    #: A run whose end nobody recorded: on this machine, or a job that the scheduler does not know any more.
    LOST = "lost"

    @property
    def over(self) -> bool:
        """The scheduler will not run it (again)."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN)


class QueueEntry(Struct, frozen=True, kw_only=True):
    """A scheduler's report about one job. `reason`: its own text, why the job waits or how it ended.
    `signal`: the signal that terminated it, 0 when unknown. `exit_code`: that of the job script, and
    `ended_at_epoch_s`: when the job ended, by the scheduler's accounts; None when unknown. `stuck`: what to
    do about a pending job that never starts by itself; "" for others."""

    job_id: str
    state: JobState
    reason: str = ""
    nodes: str = ""
    signal: int = 0
    exit_code: int | None = None
    ended_at_epoch_s: int | None = None
    stuck: str = ""


class Mark(Struct, frozen=True, kw_only=True):
    """A line that a scheduler writes into the output of a job that it terminates: a pattern, and its
    meaning."""

    pattern: str
    state: JobState


class Submission(Struct, frozen=True, kw_only=True):
    """What was submitted to a scheduler, or started on this machine. `job_id`: None until the scheduler
    returned one."""

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
    #: The number of a sweep's points, which are runs of their own; 0: not a sweep.
    points: int = 0
    fabric: FabricWatch | None = None
    command: tuple[str, ...] = ()
    #: The machine on which it was submitted or started.
    host: str = ""
    #: The cluster that it was submitted to; "" when unknown.
    cluster: str = ""
    #: Of a run on this machine: its process of Bareboat (runs/supervisor.py).
    supervisor: str = ""
    #: Of a run that is being submitted: the process that submits it (runs/supervisor.py).
    submitter: str = ""


#: The exit code of a run that the watchdog ended because it hangs; 70 is that of one whose nodes were lost.
HUNG = 71
#: That of one that was not started because its nodes do not give it what it requested (`health = "require"`).
UNHEALTHY = 72


class Cause(StrEnum):
    MEMORY = "memory"
    GPU_MEMORY = "GPU memory"
    TIME = "time limit"
    NODE = "node failure"
    PREEMPTED = "preemption"
    CANCELLED = "cancelled"
    DEPENDENCY = "dependency"
    NEVER_STARTED = "never started"
    HUNG = "hung"
    UNHEALTHY = "unhealthy nodes"
    DISK = "full file system"
    QUOTA = "quota"
    EXCEPTION = "Python exception"
    SIGNAL = "signal"
    EXIT_CODE = "exit code"


class End(Struct, frozen=True, kw_only=True):
    """Why a run ended with an exit code other than 0. `text`: the evidence. `key`: the job file key that
    addresses it, or ""; `remedy`: what to do."""

    state: JobState
    cause: Cause
    text: str
    key: str = ""
    remedy: str = ""

    @property
    def words(self) -> str:
        return f"{self.cause.value}: {self.text}" + (f"; try: {self.remedy}" if self.remedy else "")
