"""Lines of progress and tables, at 80 columns and elsewhere."""

from __future__ import annotations

import pytest

from bareboat.cli import console
from bareboat_study.cli.progress import StudyProgress


class Shown:
    """What a study's progress shows, at times of its own."""

    def __init__(self) -> None:
        self.now, self.said, self.shares = 0.0, [], []  # type: ignore[var-annotated]

    def say(self, text: str) -> None:
        self.said.append(text)

    def share(self, what: str, share: float, *, more: str, left_s: float) -> None:
        self.shares.append((what, round(share, 3), more, round(left_s, 1)))


def test_a_study_s_end_is_estimated_from_its_runs() -> None:
    shown = Shown()
    progress = StudyProgress(shown, clock=lambda: shown.now)  # type: ignore[arg-type]
    progress.say("warm-up: window 1")
    shown.now = 30
    progress.say("run 1 of 3: window 1")
    shown.now = 45
    progress.say("run 1 of 3: window 9")
    assert shown.said == ["warm-up: window 1"]
    assert shown.shares == [("run 1 of 3", 0.25, "window 1", 90.0), ("run 1 of 3", 0.375, "window 9", 75.0)]


ROWS = [
    ("", "login node", "compute node"),
    ("system", "Debian GNU/Linux 12 (bookworm), with much more " * 2, "x"),
    ("path", "/a/path/that/has/no/place/to/break/" * 4, "12"),
]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_is_folded_on_a_narrow_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", lambda: width)
    lines = console.table(ROWS).splitlines()
    assert max(map(len, lines)) <= width
    letters = sorted("".join(lines).replace(" ", ""))
    assert letters == sorted("".join("".join(row) for row in ROWS).replace(" ", "")), "nothing is lost"


def test_elsewhere_a_row_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", lambda: None)
    assert len(console.table(ROWS).splitlines()) == len(ROWS)
