"""Timestamps for files."""

from __future__ import annotations

import time


def utc_now() -> str:
    """The current UTC time in ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
