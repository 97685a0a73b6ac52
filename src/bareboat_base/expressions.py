"""Regular expressions of modules: compiled when they are first used, so that an import compiles none.

Compiling those of all modules that a run imports takes longer than planning the run.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Expression:
    """Behaves as the pattern in everything but its type: the functions of `re` do not take it."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)  # so that the next use is a look-up
        return found


def expression(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The pattern of a module. An error in `text` is raised at its first use, as `re.error`."""
    return cast("re.Pattern[AnyStr]", _Expression(text, flags))
