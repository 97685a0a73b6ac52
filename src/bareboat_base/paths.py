"""Pure: paths as text, without access to the file system."""

from __future__ import annotations

#: PATH where an image sets none: that of Docker and Podman.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def lies_in(path: str, folder: str) -> bool:
    """Whether the path is the directory or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
