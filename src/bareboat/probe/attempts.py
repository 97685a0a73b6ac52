"""A failed probe affects only its own subject."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from bareboat_base.errors import BareboatError, ToolTimeoutError
from bareboat_base.printable import one_line

T = TypeVar("T")
U = TypeVar("U")

_MOST_LATE = 400

log = logging.getLogger("bareboat")


def reason(error: Exception) -> str:
    """Why a probe failed; --verbose shows the traceback."""
    log.debug("a probe failed", exc_info=error)
    if isinstance(error, ToolTimeoutError):
        return one_line(f"{error.message}; {error.remedy}", limit=_MOST_LATE)
    if isinstance(error, BareboatError):
        return one_line(error.message)
    return one_line(f"{type(error).__name__}: {error}".removesuffix(": "))


def attempt(what: str, probe: Callable[[], T], otherwise: U, remarks: list[str]) -> T | U:
    """The result of the probe; `otherwise` and a remark when it fails in any way, since a machine's tools and
    libraries fail in unforeseeable ways."""
    try:
        return probe()
    except Exception as error:
        remarks.append(f"{what} could not be probed: {reason(error)}")
        return otherwise
