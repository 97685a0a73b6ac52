"""bareboat config trust: trust your store in a directory that others may write."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bareboat import consent, store_access
from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line

EXAMPLE = "bareboat config trust ~/project/store"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "path",
        metavar="DIR",
        nargs="?",
        help="your store below directories that others can write to; without it: list trusted paths",
    )
    parser.add_argument("--forget", action="store_true", help="stop trusting it")


def run(context: Context) -> int:
    return agree(context.options)


def agree(options: argparse.Namespace) -> int:
    """Without settings and store, which may be what is not trusted yet."""
    if options.path is None:
        if options.forget:
            raise UsageError(
                "--forget requires a path", remedy="bareboat config trust   # lists trusted paths"
            )
        found = consent.paths(os.environ)
        if options.json:
            console.result_json(found)
        else:
            console.result("\n".join(map(one_line, found)) or "no trusted files or directories")
        return 0
    path = Path(os.path.abspath(options.path))
    if options.forget:
        if not consent.take_back(path, os.environ):
            raise UsageError(f"{path} is not trusted", remedy="bareboat config trust   # lists trusted paths")
        if options.json:
            console.result_json({"path": str(path), "trusted": False})
        else:
            console.result(f"{path} is no longer trusted")
        return 0
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory", remedy="bareboat config store   # shows your store")
    lines = [str(doubt) for doubt in store_access.agree(path, os.environ)]
    if options.json:
        console.result_json({"path": str(path), "although": lines})
    else:
        console.result(
            "\n".join([f"trusted: {one_line(str(path), limit=1000)}", *(f"  {each}" for each in lines)])
        )
    return 0
