"""A failed probe affects only its own subject."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from bareboat import registry
from bareboat.engines import Host
from bareboat.model import EngineFacts
from bareboat_base.errors import BareboatError, ToolTimeoutError
from bareboat_base.files import failures
from bareboat_base.printable import one_line

T = TypeVar("T")
U = TypeVar("U")

_MOST_LATE, _MOST_DETAIL = 400, 1000

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


def _short(detail: str) -> str:
    return detail if len(detail) <= _MOST_DETAIL else one_line(detail, limit=_MOST_DETAIL)


def probe_engine(name: str, host: Host) -> tuple[EngineFacts, ...]:
    """The engine's facts, with long tool output shortened. An engine whose probe fails counts as not working,
    without effect on the others. Raises OSError where the store's file system is full or broken."""
    try:
        found = registry.engine(name).probe(host)
        return tuple(msgspec.structs.replace(facts, detail=_short(facts.detail)) for facts in found)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in failures.OF_DISKS:
            raise  # the file system is at fault, and another engine would fail the same way
        why = f"the probe failed: {reason(error)}"
        modes = (mode.partition(":")[2] for mode in registry.modes(name))
        return (
            EngineFacts(
                name=name, path=host.which(name) or "", version="", origin="on PATH", works=False,
                detail=why, remedy="bareboat doctor", faults={mode: why for mode in modes if mode},
            ),
        )  # fmt: skip
