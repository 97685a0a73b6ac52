"""Run folders at fixed places: what the command is told, for engines that cannot mount at any path."""

from __future__ import annotations

from fairlead.engines.fixed import inside
from fairlead.model import Joined, Variable, WhenSet


def test_words_that_hold_a_run_folder_name_its_place_inside() -> None:
    folder, mark = Variable("FAIRLEAD_RUN_DIR"), Variable("FAIRLEAD_RUN")
    words = (
        "a",
        folder,
        mark,
        Joined(("--log=", folder, "/logs")),
        WhenSet("X", (folder, Joined((mark, "/")))),
    )
    assert inside(words) == (
        "a",
        "/run/fairlead/FAIRLEAD_RUN_DIR",
        mark,
        Joined(("--log=", "/run/fairlead/FAIRLEAD_RUN_DIR", "/logs")),
        WhenSet("X", ("/run/fairlead/FAIRLEAD_RUN_DIR", Joined((mark, "/")))),
    )
