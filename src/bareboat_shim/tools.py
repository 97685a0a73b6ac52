"""The tools that have a shim. Only the module of the one that is called is imported."""

from __future__ import annotations

from collections.abc import Mapping

from bareboat_base.errors import UsageError
from bareboat_shim.shims import NAMES
from bareboat_shim.table import Line, Table


def table(tool: str) -> Table:
    """Raises UsageError for another name."""
    if tool not in NAMES:
        raise UsageError(f"no shim of {tool!r} exists", remedy=f"use one of: {', '.join(NAMES)}")
    from bareboat_shim.apptainer_table import TABLE

    return TABLE


def run(_tool: str, line: Line, environment: Mapping[str, str]) -> int:
    """Run a tool's command line; return the exit code, -N for signal N."""
    from bareboat_shim import apptainer

    return apptainer.run(line, environment)
