"""The directories of a path that this user may enter."""

from __future__ import annotations

import os
from pathlib import Path


def closed(path: str | Path) -> str | None:
    """The first directory above the path that this user may not enter."""
    above = Path(os.path.abspath(path)).parents
    return next(
        (str(each) for each in reversed(above) if os.path.isdir(each) and not os.access(each, os.X_OK)), None
    )
