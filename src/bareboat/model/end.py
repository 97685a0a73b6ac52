"""The cause of a failed run, and the job file key that addresses it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from bareboat.model.submission import JobState

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
