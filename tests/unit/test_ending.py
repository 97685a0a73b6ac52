"""Why a run failed, as `run`, `wait` and `logs` show it."""

from __future__ import annotations

from bareboat.cli import ending
from bareboat.model import Cause, End, JobState


def test_the_end_of_a_run_shows_the_cause_and_the_remedy() -> None:
    end = End(state=JobState.FAILED, cause=Cause.DISK, text="No space left", remedy="df -h")
    assert ending.lines(end) == ["  full file system: No space left", "  try: df -h"]
    assert ending.lines(None) == []
    assert ending.lines(None, otherwise="cancelled") == ["  cancelled"]
