"""Small files of the kernel, read without ceremony."""

from __future__ import annotations

from pathlib import Path


def read_text(path: str) -> str:
    """A file's text, or nothing."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
