"""Timestamps for files."""

from __future__ import annotations

import time
from datetime import datetime


def utc_now() -> str:
    """The current UTC time in ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def moment(epoch_s: int) -> str:
    """Seconds since 1970 as such a time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s))


def epoch_s(text: str) -> int:
    """Seconds since 1970 of such a time; 0 for other text."""
    try:
        found = int(datetime.fromisoformat(text).timestamp())  # strptime imports and compiles a lot
        return found if moment(found) == text else 0
    except (ValueError, OverflowError, OSError):
        return 0
