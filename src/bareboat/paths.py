"""Paths as text, without a look at what is there. Pure."""

from __future__ import annotations


def lies_in(path: str, folder: str) -> bool:
    """Whether the path is the folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
