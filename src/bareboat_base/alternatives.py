"""Alternatives that a choice rejected."""

from __future__ import annotations

from msgspec import Struct


class Rejected(Struct, frozen=True, kw_only=True):
    """A rejected alternative, and why."""

    choice: str
    reason: str
    remedy: str = ""
