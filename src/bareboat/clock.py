"""Moments as they are written into files."""

from __future__ import annotations

import time


def utc_now() -> str:
    """This second, in UTC, as ISO 8601 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
