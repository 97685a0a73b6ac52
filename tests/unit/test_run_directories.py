"""Run folders at fixed places: what the command is told, for engines that cannot mount at any path."""

from bareboat.engines.run_directories import inside
from bareboat.model import IfSet, Joined, NodePath, Variable


def test_words_that_hold_a_run_folder_name_its_place_inside() -> None:
    folder, mark = NodePath("BAREBOAT_RUN_DIR", "/x"), Variable("BAREBOAT_RUN")
    words = (
        "a",
        folder,
        mark,
        Joined(("--log=", folder, "/logs")),
        IfSet("X", (folder, Joined((mark, "/")))),
    )
    assert inside(words) == (
        "a",
        "/run/bareboat/BAREBOAT_RUN_DIR/x",
        mark,
        Joined(("--log=", "/run/bareboat/BAREBOAT_RUN_DIR/x", "/logs")),
        IfSet("X", ("/run/bareboat/BAREBOAT_RUN_DIR/x", Joined((mark, "/")))),
    )
