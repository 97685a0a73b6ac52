"""bareboat trust: believe a project's settings, or a place that others may write to."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bareboat import access, config, consent
from bareboat.cli import console
from bareboat.cli.common import add_common
from bareboat.errors import UsageError
from bareboat.printable import one_line

EXAMPLE = "bareboat trust bareboat.toml"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "path",
        metavar="FILE | DIR",
        nargs="?",
        help=f"a project's {config.PROJECT_FILE}, or a store of yours below directories that others may "
        "write to; without it: list what you trust",
    )
    parser.add_argument("--forget", action="store_true", help="trust it no longer")


def run(options: argparse.Namespace) -> int:
    if options.path is None:
        if options.forget:
            raise UsageError("--forget requires a path", remedy="bareboat trust   # lists them")
        found = consent.paths(os.environ)
        if options.json:
            console.result_json(found)
        else:
            console.result("\n".join(map(one_line, found)) or "you trust no file or directory of others")
        return 0
    path = Path(os.path.abspath(options.path))
    if options.forget:
        if not consent.take_back(path, os.environ):
            raise UsageError(f"you do not trust {path}", remedy="bareboat trust   # lists what you trust")
        console.note(f"{path} is not trusted any more")
        return 0
    if not path.exists():
        raise UsageError(f"there is no {path}", remedy="name a file or a directory")
    if path.is_dir():
        doubts = access.agree(path, os.environ)
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
            "\n".join([f"you trust {one_line(str(path), limit=1000)}", *(f"  {each}" for each in lines)])
        )
    return 0
