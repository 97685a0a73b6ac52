"""The outcome of a command."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a command. `exit_code` is negative for a signal, 127 for no such program, and
    NO_ANSWER for one that was stopped because it hung or printed too much, with the error in `stderr`."""

    NO_ANSWER: ClassVar[int] = 124

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    wall_s: float

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def unanswered(self) -> bool:
        return self.exit_code == self.NO_ANSWER


def signal_of(code: int) -> int:
    """The signal for which shells return this exit code; 0 for none: Linux has 64 signals."""
    return code - 128 if 128 < code <= 128 + 64 else 0
