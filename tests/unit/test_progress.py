"""Lines of progress and tables, at 80 columns and elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat.cli import bar, console
from bareboat_study.cli.progress import StudyProgress


def test_the_line_has_a_bar_a_share_a_rate_and_the_time_left() -> None:
    line = bar.line("[0:04]", "pulling", 0.25, width=79, more="102 of 408 MB  51 MB/s", left_s=6, utf8=True)
    assert line == "[0:04]  pulling  ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   25%  102 of 408 MB  51 MB/s  0:06 left"
    assert bar.line("[0:04]", "x", 1, width=79, utf8=False) == f"[0:04]  x  {'#' * 20}  100%"


@given(
    what=st.text(min_size=1, max_size=60), share=st.floats(-1, 2), width=st.integers(1, 200),
    left=st.none() | st.floats(0, 1e6), more=st.text(max_size=40),
)  # fmt: skip
def test_it_always_fits(what: str, share: float, width: int, left: float | None, more: str) -> None:
    assert len(bar.line("[0:00]", what, share, width=width, more=more, left_s=left, utf8=True)) <= width


def test_the_pace_is_that_of_the_last_seconds() -> None:
    pace = bar.Pace()
    assert pace.rate is None
    for second in range(20):
        pace.add(second, 10 * second if second < 10 else 100 + 20 * (second - 10))
    assert pace.rate == pytest.approx(20)
    assert pace.left_s(320) == pytest.approx(2)
    pace.add(21, 0)
    assert pace.rate is None, "another attempt begins anew"


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
