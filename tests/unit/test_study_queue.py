"""When a study in a scheduler's jobs submits another one."""

from typing import Any

import pytest
from matrices import make_matrix

from bareboat.model import JobState
from bareboat.runs.state import Status
from bareboat_images.store import Store
from bareboat_study import queue


def test_the_last_run_of_a_job_that_ended_is_collected_before_another_job(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    monkeypatch.setattr(queue.Queue, "_collect", lambda _self, number: written.append(number))
    monkeypatch.setattr(queue.Queue, "_done", lambda *_: 2 + bool(written))
    monkeypatch.setattr(queue.Queue, "_left", lambda _self: {} if written else {0: [2]})
    study: Any = None
    made: Any = None
    followed = queue.Queue(store, make_matrix(), say=lambda _: None, note=lambda _: None)
    followed._points = [queue._Point(study, had=0)]
    ended = Status(submission=made, state=JobState.COMPLETED, exit_code=0)
    assert followed._has_settled(0, ended)
