"""Pure: paths as text, without access to the file system."""

from __future__ import annotations

import shlex

#: PATH where an image sets none: that of Docker and Podman.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def lies_in(path: str, folder: str) -> bool:
    """Whether the path is the directory or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def to_make(place: str, *, is_directory: bool) -> str:
    """The command that makes a mount point."""
    at, above = shlex.quote(place), shlex.quote(place.rpartition("/")[0] or "/")
    return f"mkdir -p {at}" if is_directory else f"mkdir -p {above} && touch {at}"
