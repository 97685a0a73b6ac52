"""bareboat rm: remove runs that ended."""

from __future__ import annotations

import argparse

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.cli.status import find

EXAMPLE = "bareboat rm digits-20261120-101500"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="runs, sweeps, studies, or their job names")
    parser.add_argument(
        "--force", action="store_true", help="also remove runs of which it is unknown whether they ended"
    )
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat.cli.image.common import size
    from bareboat.runs import removal

    options = context.options
    names = [find(context, name) for name in options.runs]
    removed = removal.remove(context.store, names, force=options.force, dry_run=options.dry_run)
    if options.json:
        console.result_json({"removed": removed, "dry_run": options.dry_run})
        return 0
    verb = "would remove" if options.dry_run else "removed"
    for each in removed:
        console.result(f"{verb} {each.run_id}: {size(each.amount)}")
    return 0
