"""Errors in a Dockerfile: with its name, the line number, and the line's text."""

from __future__ import annotations

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line

_LONGEST = 160


class RecipeError(UsageError):
    """A Dockerfile is wrong, or requires an unsupported feature. `line`: its number, from 1."""

    def __init__(self, message: str, *, line: int, text: str = "", remedy: str = "", name: str = "") -> None:
        self.line = line
        self.text = text
        super().__init__(message, context=_place(name, line, text), remedy=remedy)

    def named(self, name: str) -> RecipeError:
        """The same error with the name of the file."""
        return RecipeError(self.message, line=self.line, text=self.text, remedy=self.remedy, name=name)


def _place(name: str, line: int, text: str) -> str:
    place = f"{name or 'Dockerfile'}:{line}"
    return f"{place}: {one_line(text, limit=_LONGEST)}" if text else place
