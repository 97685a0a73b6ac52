"""The callback type for progress of work on images."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and how many bytes of how many are done."""
