"""The plan's sentence about directories whose content vanishes with the container."""

from __future__ import annotations

from bareboat.plan import container

SCRATCH = ("/tmp", "/home/ada")


def test_a_mounted_directory_is_not_among_those_that_vanish() -> None:
    text = container._discarded(SCRATCH, ["/home/ada"])
    assert text == "/tmp can be written to, and what is written there vanishes"


def test_mounts_below_a_directory_that_vanishes_are_excepted() -> None:
    text = container._discarded(SCRATCH, ["/home/ada/project"])
    assert text.endswith("what is written there outside of mounts vanishes")
