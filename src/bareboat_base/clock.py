"""Timestamps for files."""

from __future__ import annotations

import calendar
import time


def utc_now() -> str:
    """The current UTC time in ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def moment(epoch_s: int) -> str:
    """Seconds since 1970 as such a time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s))


def epoch_s(moment: str) -> int:
    """Seconds since 1970 of such a time; 0 for other text."""
    try:
        return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return 0
