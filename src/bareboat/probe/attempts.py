"""A probe that fails rules out its own subject, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from bareboat.errors import BareboatError, ToolTimeoutError
from bareboat.printable import one_line

T = TypeVar("T")
U = TypeVar("U")

_MOST_LATE = 400

log = logging.getLogger("bareboat")


def reason(error: Exception) -> str:
    """Why a probe failed, for a reader; --verbose shows where."""
    log.debug("a probe failed", exc_info=error)
    if isinstance(error, ToolTimeoutError):
        return one_line(f"{error.message}; {error.remedy}", limit=_MOST_LATE)
    if isinstance(error, BareboatError):
        return one_line(error.message)
    return one_line(f"{type(error).__name__}: {error}".removesuffix(": "))


def attempt(what: str, probe: Callable[[], T], otherwise: U, remarks: list[str]) -> T | U:
    """What the probe finds; `otherwise` and a remark when it fails, in whatever way: tools and libraries of a
    machine fail in ways that nobody has foreseen."""
    try:
        return probe()
    except Exception as error:
        remarks.append(f"{what} could not be probed: {reason(error)}")
        return otherwise
