"""Pieces of bash, each in a `.sh` file next to the modules that use it. Pure: reads only the package."""

from __future__ import annotations

import functools
import importlib


@functools.cache
def piece(package: str, name: str) -> str:
    """The bash in the package's file NAME.sh, without its first comment, which lists the variables that it
    expects."""
    found = importlib.import_module(package)
    data: bytes = found.__loader__.get_data(f"{found.__path__[0]}/{name}.sh")  # type: ignore[union-attr]
    return data.decode().partition("\n\n")[2]
