"""Small files of the kernel."""

from __future__ import annotations

from pathlib import Path


def read_text(path: str) -> str:
    """A file's text; empty when it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
