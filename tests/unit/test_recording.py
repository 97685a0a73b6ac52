"""The recording of the first page: what it begins and ends with, and what it shows without an animation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
import record


def screen(*lines: str) -> record.Screen:
    return tuple(((0, line, record.COLOURS["default"], False),) if line else () for line in lines)


DOCTOR = screen(*(f"yes  check {number}" for number in range(20)))
VERDICT = screen("$ bareboat prove train.toml", "equivalent within 2 %: throughput is 1.0009")


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ([(0.0, DOCTOR), (9.0, VERDICT)], None),
        ([(0.0, DOCTOR), (9.0, screen("different: wall time is 4 % higher"))], None),
        ([(0.0, screen("$ bareboat doctor", "")), (9.0, VERDICT)], "almost empty"),
        ([(0.0, DOCTOR), (9.0, screen("undecided at 2 %: throughput is 0.9769"))], "no decided verdict"),
        ([(0.0, DOCTOR), (1.0, screen("record in /tmp/a1b")), (9.0, VERDICT)], "a path of this machine"),
    ],
)
def test_a_recording_begins_with_something_and_ends_with_a_verdict(
    frames: list[tuple[float, record.Screen]], fault: str | None
) -> None:
    found = record.fault_of(frames)
    assert (found is None) is (fault is None)
    assert fault is None or fault in str(found)


def test_the_first_screen_is_there_from_the_beginning_and_the_last_stays() -> None:
    drawn = record.svg([(0.0, DOCTOR), (1.0, VERDICT), (4.0, VERDICT)])
    assert "@keyframes k0{0%,0.000%{visibility:hidden}0.000%,25.000%{visibility:visible}" in drawn
    assert "@keyframes k1{0%,25.000%{visibility:hidden}25.000%,100.000%{visibility:visible}}" in drawn
    assert "prefers-reduced-motion:reduce){.f{animation:none}.last{visibility:visible}}" in drawn
    assert "equivalent within 2 %" in drawn
    assert f">{record.NOTICE}</text>" in drawn


def test_the_recording_of_the_first_page_is_one() -> None:
    shown = (Path(record.__file__).parents[1] / "pictures/session.svg").read_text(encoding="utf-8")
    assert f">{record.NOTICE}</text>" in shown
    assert record._DECIDED.search(shown)
    assert "/tmp/" not in shown.replace("programs in /tmp", "").replace("/tmp (", "")
