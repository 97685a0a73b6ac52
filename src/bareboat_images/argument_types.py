"""The types of what programs pass to this library: a wrong one is an error that says so."""

from __future__ import annotations

from types import NoneType

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line


def check(name: str, value: object, *kinds: type) -> None:
    """Raise UsageError for a value of none of these types."""
    if not isinstance(value, kinds):
        wanted = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise UsageError(
            f"{name} is {one_line(repr(value), limit=60)} ({type(value).__name__}), not {wanted}",
            remedy=f"pass {wanted}",
        )
