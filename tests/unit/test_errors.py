"""Errors that get a place on their way to the user."""

from bareboat_base.errors import ProgramError, UsageError
from bareboat_study.arms import ArmError


def test_an_error_with_facts_of_its_own_keeps_them_in_another_place() -> None:
    arm = ArmError("bare", "it ended", context="output", remedy="look", code=9).but(context="point n=1")
    assert (type(arm), arm.arm, str(arm)) == (ArmError, "bare", "bare: it ended")
    assert (arm.context, arm.remedy, arm.code) == ("point n=1", "look", 9)
    program = ProgramError("no such program", status=127).but(message="not there")
    assert (program.status, program.code, program.message, str(program)) == (127, 3, "not there", "not there")
    assert UsageError("wrong", key="a.b").but(remedy="do").key == "a.b"
