"""Pieces of bash, each in a `.sh` file next to the modules that use it. Pure: reads only the package."""

from __future__ import annotations

import functools
import pkgutil


@functools.cache
def piece(package: str, name: str) -> str:
    """The bash in the package's file NAME.sh, without its first comment, which lists the variables that it
    expects."""
    data = pkgutil.get_data(package, f"{name}.sh")
    assert data is not None, f"{package} has no {name}.sh"
    return data.decode().partition("\n\n")[2]
