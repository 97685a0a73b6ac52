"""The boundary of the API: wrong types of arguments and errors of the operating system are
BareboatErrors, whose remedies are Python's."""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from bareboat.api import remedies
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.files import failures
from bareboat_base.printable import one_line


class translated(contextlib.ContextDecorator):
    """Raise errors of the operating system as BareboatErrors, as the command line shows them, and name the
    calls of remedies instead of their commands."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        explained = None if error is None else _of_text(error) or failures.explain(error)
        shown = explained or error
        if isinstance(shown, BareboatError):
            shown.remedy = remedies.in_python(shown.remedy)
        if explained is not None:
            raise explained from error


def _of_text(error: BaseException) -> UsageError | None:
    if not isinstance(error, UnicodeEncodeError):
        return None
    part = ascii(error.object[error.start : error.end][:20])
    return UsageError(
        f"a text contains {part}, which is no character: no path, variable or argument can hold it",
        remedy="correct the text",
    )


def text(what: str, value: object) -> str:
    """Raises UsageError for anything but text."""
    if not isinstance(value, str):
        raise _wrong(what, value, "text")
    return value


def path(what: str, value: object) -> str:
    """A path as text. Raises UsageError."""
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(found, str):
        raise _wrong(what, value, "text or a path")
    if "\0" in found:
        raise UsageError(f"{what} contains a NUL byte, which no path has", remedy="correct the path")
    return found


def absolute(what: str, value: object) -> str:
    """A path relative to the working directory. Raises UsageError; OSError without a working directory."""
    return os.path.abspath(path(what, value))


def several(what: str, values: object) -> list[Any]:
    """The elements. Raises UsageError for one text and for what has no elements, or no order."""
    if isinstance(values, str | bytes | Mapping | set | frozenset) or not isinstance(values, Iterable):
        raise _wrong(what, values, "a list")
    return list(values)


def number(what: str, value: object) -> float:
    """Raises UsageError for anything but a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise _wrong(what, value, "a number")
    return value


def whole(what: str, value: Any) -> int:
    """Raises UsageError for anything but a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise _wrong(what, value, "a whole number") from None


def _wrong(what: str, value: object, kind: str) -> UsageError:
    return UsageError(
        f"{what} is {one_line(repr(value), limit=60)} ({type(value).__name__}); it must be {kind}",
        remedy=f"pass {kind}",
    )
