"""The tools that have a shim. Only the modules of the one that is called are imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from bareboat_base.errors import UsageError
from bareboat_shim.table import Line, Table

#: Tool -> the module that runs its command lines; its table is in MODULE_table.
_MODULES = {
    "apptainer": "apptainer",
    "singularity": "apptainer",
    "udocker": "udocker",
    "srun": "pyxis",
    "sbatch": "pyxis",
    "salloc": "pyxis",
}
NAMES = tuple(_MODULES)
#: Those that add flags to the tool itself, which must be installed, and start it.
WRAPPERS = ("srun", "sbatch", "salloc")


def table(tool: str) -> Table:
    """Raises UsageError for another name."""
    found: Table = importlib.import_module(f"bareboat_shim.{_module(tool)}_table").TABLE
    return found


def wrap(tool: str, shim: str, words: Sequence[str], environment: Mapping[str, str], *, forced: bool) -> int:
    """Run a command line of one of WRAPPERS in the place of this process; it returns for errors only."""
    module = importlib.import_module(f"bareboat_shim.{_module(tool)}")
    code: int = module.run(tool, shim, words, environment, forced=forced)
    return code


def run(tool: str, line: Line, environment: Mapping[str, str]) -> int:
    """Run a tool's command line; return the exit code, -N for signal N."""
    code: int = importlib.import_module(f"bareboat_shim.{_module(tool)}").run(line, environment)
    return code


def _module(tool: str) -> str:
    if tool not in _MODULES:
        raise UsageError(f"no shim of {tool!r} exists", remedy=f"use one of: {', '.join(NAMES)}")
    return _MODULES[tool]
