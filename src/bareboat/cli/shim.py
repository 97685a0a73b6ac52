"""bareboat shim: write programs that run other tools' command lines with Bareboat's containers."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from bareboat import gone
from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat_base.errors import UsageError
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_shim import shims
from bareboat_shim.tools import NAMES

EXAMPLE = "bareboat shim --into ~/shims"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("--into", metavar="DIR", required=True, help="directory for the shims, for PATH")
    parser.add_argument(
        "--tools", metavar="NAME[,…]", default=",".join(NAMES), help=f"tools (default: {','.join(NAMES)})"
    )
    parser.add_argument(
        "--force", action="store_true", help="also replace tools that are installed; else those have priority"
    )
    add_dry_run(parser)


def run(context: Context) -> int:
    options = context.options
    tools = [name for name in options.tools.split(",") if name]
    for name in tools:
        gone.refuse(f"shim {name}")
        if name not in NAMES:
            near = nearest(name, NAMES)
            raise UsageError(
                f"--tools has {quoted(name)}, which has no shim"
                + (f"; did you mean {near!r}?" if near else ""),
                context=f"tools: {', '.join(NAMES)}",
                remedy=f"--tools {near or NAMES[0]}",
            )
    if "://" in options.into:
        raise UsageError(f"--into {options.into} is a URL, not a directory", remedy="--into ~/shims")
    folder = Path(os.path.expanduser(options.into))
    found = shims.write(folder, tools, force=options.force, dry_run=options.dry_run)
    if options.json:
        console.result_json({"shims": [each._asdict() for each in found], "dry_run": options.dry_run})
        return 0
    for each in found:
        if each.written:
            console.result(f"{'would write' if options.dry_run else 'wrote'} {each.path}")
        elif each.installed is None:
            console.note(f"{each.tool} is not installed; its shim would start it: not written")
        else:
            console.note(f"{each.tool} is installed: {each.installed}; not written: --force replaces it")
    if any(each.written for each in found):
        console.note(f"export PATH={shlex.quote(str(folder.absolute()))}:$PATH   # in your job script")
    return 0
