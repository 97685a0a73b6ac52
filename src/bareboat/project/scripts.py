"""A project's Python scripts. Files are read, and never run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from bareboat import commands, python_source
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression

_MOST_FILES = 300
_NO_SCRIPT = expression(
    r"(test_.*|.*_test|conftest|setup|noxfile|tasks|fabfile|__init__|__main__|versioneer)\.py"
)
#: Where projects keep scripts, beside their top.
_PLACES = ("", "src", "scripts", "bin", "examples")


def of_command(command: Sequence[str]) -> str | None:
    """The Python script that the command starts; None for a module, and for other programs."""
    if not command:
        return None
    if command[0].endswith(".py"):
        return command[0]
    script = commands.file(command) if commands.is_python(command[0]) else None
    return script if script is not None and script.endswith(".py") else None


def find(top: Path) -> str:
    """The only script of the project with a main part, relative to `top`. Raises UsageError for none and for
    several."""
    found: list[str] = []
    for place in _PLACES:
        found = [f"{place}/{name}" if place else name for name in _with_main(top / place)]
        if found:
            break
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no Python script with a main part was found in {top}",
            context="searched: *.py there and in src/, scripts/, bin/, examples/",
            remedy="name one:  bareboat init SCRIPT.py; or a command:  bareboat init -- COMMAND",
        )
    usual = [name for name in found if os.path.basename(name) in ("train.py", "main.py")]
    shown = ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
    raise UsageError(
        f"{len(found)} scripts with a main part were found in {top}",
        context=f"scripts: {shown}",
        remedy=f"bareboat init {shlex.quote((usual or found)[0])}",
    )


def _with_main(folder: Path) -> list[str]:
    """The scripts of a directory that have a main part; without one, the only script that does something."""
    try:
        names = sorted(
            entry.name
            for entry in os.scandir(folder)
            if entry.name.endswith(".py") and not _NO_SCRIPT.fullmatch(entry.name)
        )
    except OSError:
        return []
    seen: dict[str, python_source.Source] = {}
    for name in names[:_MOST_FILES]:
        try:
            seen[name] = python_source.read(folder / name)
        except OSError:
            continue
    mains = [name for name, each in seen.items() if each.has_main]
    imported = {package for each in seen.values() for package in each.packages}
    doing = [name for name, each in seen.items() if (each.runs or each.fault) and name[:-3] not in imported]
    return mains or doing
