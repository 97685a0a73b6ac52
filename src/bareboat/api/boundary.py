"""The boundary of the API: wrong types of arguments and errors of the operating system are
BareboatErrors."""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from bareboat.session.opening import explain
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line


class translated(contextlib.ContextDecorator):
    """Raise errors of the operating system as BareboatErrors, as the command line shows them."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        explained = None if error is None else explain(error)
        if explained is not None:
            raise explained from error


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


def several(what: str, values: object, kind: type = object) -> list[Any]:
    """The elements, of this kind. Raises UsageError; also for one text, and for what has no order."""
    if isinstance(values, str | bytes | Mapping | set | frozenset) or not isinstance(values, Iterable):
        raise _wrong(what, values, "a list")
    return [one(f"an element of {what}", each, kind) for each in values]


def one(what: str, value: object, kind: type) -> Any:
    """Raises UsageError for anything but a value of this kind."""
    if not isinstance(value, kind):
        raise _wrong(what, value, kind.__name__)
    return value


def variables(what: str, values: object) -> dict[str, str]:
    """Raises UsageError for anything but names and values in text."""
    if not isinstance(values, Mapping):
        raise _wrong(what, values, "a mapping")
    return {text(what, name): text(f"{what}, {name}", value) for name, value in values.items()}


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
