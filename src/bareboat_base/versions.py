"""Pure: versions, compared by their numbers."""

from __future__ import annotations

import re


def numbers(version: str) -> tuple[int, ...]:
    """The numbers in a version, in order."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version))
