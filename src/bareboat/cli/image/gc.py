"""bareboat image gc: remove unused data."""

from __future__ import annotations

import argparse

from bareboat.cli import console
from bareboat.cli.command_line import number
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.cli.image.common import size

EXAMPLE = "bareboat image gc --older-than 30 --dry-run"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "--older-than",
        metavar="DAYS",
        type=number("--older-than"),
        help="also remove images without a name or a pin that are older than this",
    )
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat.images import upkeep

    options = context.options
    found = upkeep.collect_garbage(context.store, dry_run=options.dry_run, older_than_days=options.older_than)
    if options.json:
        console.result_json(found)
        return 0
    verb = "would free" if options.dry_run else "freed"
    for each in found.freed:
        console.result(f"  {each.kind:<16} {each.name[:71]}  {size(each.amount)}")
    console.result(f"{verb} {size(found.amount)} in {context.store.root}")
    for reason in found.kept:
        console.note(f"kept: {reason}")
    return 0
