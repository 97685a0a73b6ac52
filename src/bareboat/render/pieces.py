"""The complete pieces of job scripts: runtime/NAME.sh."""

from __future__ import annotations

from bareboat import bash


def piece(name: str) -> str:
    return bash.piece(__package__, f"runtime/{name}")
