"""The tools that have a shim. Only the modules of the one that is called are imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from bareboat_base.errors import UsageError
from bareboat_shim.table import Line, Table

#: Tool -> the module that runs its command lines; its table is in MODULE_table.
_MODULES = {
    "apptainer": "apptainer",
    "singularity": "apptainer",
    "udocker": "udocker",
    "docker": "docker",
    "podman": "docker",
}
NAMES = tuple(_MODULES)


def table(tool: str) -> Table:
    """Raises UsageError for another name."""
    found: Table = importlib.import_module(f"bareboat_shim.{_module(tool)}_table").TABLE
    return found


def run(tool: str, line: Line, environment: Mapping[str, str]) -> int:
    """Run a tool's command line; return the exit code, -N for signal N."""
    code: int = importlib.import_module(f"bareboat_shim.{_module(tool)}").run(line, environment)
    return code


def _module(tool: str) -> str:
    if tool not in _MODULES:
        raise UsageError(f"no shim of {tool!r} exists", remedy=f"use one of: {', '.join(NAMES)}")
    return _MODULES[tool]
