"""The files of shims: small programs on PATH that start this very installation of Bareboat."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bareboat_base import __version__
from bareboat_base.errors import UsageError
from bareboat_shim import tools as all_tools

_MARK = "# Written by bareboat shim"
_HEAD_BYTES = 400
#: Set in every container of a shim: the tool.
INSIDE = "BAREBOAT_SHIM"

#: Argument of a shim that replaces an installed tool.
FORCED = "--forced"

#: It is read by shells of containers and of nodes where Bareboat may be missing.
_TEXT = """\
#!/bin/sh
{mark}: Bareboat {version}, {tool}. It starts Bareboat in the place of {tool}.
python={python}
if [ -n "${{{inside}-}}${{BAREBOAT_IMAGE-}}" ]; then
  echo "FATAL:   {tool} is called in a container${{{inside}:+ of ${inside}'s shim}}" >&2
  echo "  try: call it outside of the container; in a job file: shim = true" >&2
  exit {code}
fi
if [ ! -x "$python" ]; then
  echo "FATAL:   Bareboat's Python $python was removed, or this node does not see it" >&2
  echo "  try: bareboat shim --into {directory}" >&2
  exit {code}
fi
{store}exec "$python" -I -c 'from bareboat_shim.main import entry; entry()' {tool} {shim} {forced} "$@"
"""


class Written(NamedTuple):
    """A shim, or why it was not written. `installed`: the tool itself, which has priority or,
    for one of WRAPPERS, which the shim starts."""

    tool: str
    path: str
    installed: str | None
    written: bool


def write(folder: Path, tools: Sequence[str], *, force: bool, dry_run: bool) -> list[Written]:
    """Write the shims of these tools. `force`: also where the tool itself is installed, which they replace.
    Raises UsageError."""
    from bareboat_base.files import outputs

    folder = folder.absolute()
    _check(folder, tools)
    found = []
    for tool in tools:
        path = folder / tool
        real = installed(tool, str(path), os.environ)
        is_written = real is not None if tool in all_tools.WRAPPERS else real is None or force
        if is_written and not dry_run:
            folder.mkdir(exist_ok=True)
            outputs.write(path, os.fsencode(_text(tool, path, force=force)), mode=0o777)
        found.append(Written(tool, str(path), real, is_written))
    return found


#: What the text of shims depends on, besides their directory.
KEY = (__version__, sys.executable)


def texts(folder: Path, *, force: bool, store: str) -> dict[str, str]:
    """The shims of all tools, for nodes that may have other ones than this machine: where a tool itself is
    on PATH, its shim starts that, without `force`. `store`: where their images are."""
    return {tool: _text(tool, folder / tool, force=force, store=store) for tool in all_tools.NAMES}


def _check(folder: Path, tools: Sequence[str]) -> None:
    from bareboat_base.files import outputs, ownership

    if (doubt := ownership.doubt(folder)) is not None:
        raise UsageError(f"--into: others could replace the shims: {doubt}", remedy=doubt.remedy)
    if not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise UsageError(f"--into: {folder} is not a directory", remedy="--into ~/shims")
        outputs.check(folder, flag="--into", is_folder=True)
        return
    for tool in tools:
        path = outputs.check(folder / tool, flag="--into")
        if os.path.lexists(path) and not _is_shim(str(path)):
            quoted = shlex.quote(str(path))
            raise UsageError(f"{path} exists and is no shim", remedy=f"mv {quoted} {quoted}.old")


def _text(tool: str, path: Path, *, force: bool, store: str = "") -> str:
    return _TEXT.format(
        mark=_MARK,
        version=__version__,
        tool=tool,
        python=shlex.quote(sys.executable),
        inside=INSIDE,
        code=all_tools.table(tool).fatal,
        directory=shlex.quote(str(path.parent)),
        shim=shlex.quote(str(path)),
        forced=FORCED if force else "--",
        store=f"export BAREBOAT_STORE=${{BAREBOAT_STORE-{shlex.quote(store)}}}\n" if store else "",
    )


def installed(tool: str, shim: str, environment: Mapping[str, str]) -> str | None:
    """The tool itself on PATH."""
    for folder in filter(None, environment.get("PATH", os.defpath).split(":")):
        path = os.path.join(folder, tool)
        if os.access(path, os.X_OK) and os.path.isfile(path) and path != shim and not _is_shim(path):
            return path
    return None


def _is_shim(path: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return f"\n{_MARK}: " in stream.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return False
