"""bareboat config trust: trust a project's settings, or a store in a shared directory."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bareboat import config, consent, store_access
from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line

EXAMPLE = "bareboat config trust bareboat.toml"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "path",
        metavar="FILE | DIR",
        nargs="?",
        help=f"a project's {config.PROJECT_FILE}, or your store below directories that others can "
        "write to; without it: list trusted paths",
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
    if not path.exists():
        raise UsageError(f"{path} does not exist", remedy="name a file or a directory")
    if path.is_dir():
        doubts = store_access.agree(path, os.environ)
        lines = [str(doubt) for doubt in doubts]
        agreed: dict[str, object] = {"path": str(path), "although": lines}
    else:
        values = config.agree(path, os.environ)
        agreed = {"path": str(path), "sets": values}
        lines = [f"{name} = {one_line(str(value))}" for name, value in values.items()]
    if options.json:
        console.result_json(agreed)
    else:
        console.result(
            "\n".join([f"trusted: {one_line(str(path), limit=1000)}", *(f"  {each}" for each in lines)])
        )
    return 0
