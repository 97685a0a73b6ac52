"""Run folders at fixed places: what the command is told, for engines that cannot mount at any path."""

from __future__ import annotations

from bareboat.engines.fixed import inside
from bareboat.model import Joined, Variable, WhenSet


def test_words_that_hold_a_run_folder_name_its_place_inside() -> None:
    folder, mark = Variable("BAREBOAT_RUN_DIR"), Variable("BAREBOAT_RUN")
    words = (
        "a",
        folder,
        mark,
        Joined(("--log=", folder, "/logs")),
        WhenSet("X", (folder, Joined((mark, "/")))),
    )
    assert inside(words) == (
        "a",
        "/run/bareboat/BAREBOAT_RUN_DIR",
        mark,
        Joined(("--log=", "/run/bareboat/BAREBOAT_RUN_DIR", "/logs")),
        WhenSet("X", ("/run/bareboat/BAREBOAT_RUN_DIR", Joined((mark, "/")))),
    )
