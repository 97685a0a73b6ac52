"""The real tools that tests need, and who runs them."""

from __future__ import annotations

import os
import shutil

import pytest


def tool(name: str) -> str:
    """The path of a program that a test needs; without it the test is skipped, and under --require fails."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def ordinary() -> tuple[str, ...]:
    """What to put before a command so that file modes hold for it, as they do for every user but root."""
    if os.geteuid() != 0:
        return ()
    return (tool("setpriv"), "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", "--")
