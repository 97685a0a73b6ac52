"""bareboat image gc: remove unused data."""

from __future__ import annotations

import argparse
import dataclasses

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
    parser.add_argument(
        "--runs-older-than",
        metavar="DAYS",
        type=number("--runs-older-than"),
        help="also remove runs that ended and have not changed for so long",
    )
    parser.add_argument(
        "--build-cache", action="store_true", help="also remove the results of build steps and cache mounts"
    )
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat_images import upkeep
    from bareboat_images.upkeep.removal import Freed

    options = context.options
    found = upkeep.collect_garbage(
        context.store,
        dry_run=options.dry_run,
        older_than_days=options.older_than,
        build_cache=options.build_cache,
    )
    from bareboat.runs import removal

    if not options.dry_run:
        removal.remove_values(context.store)
    runs = []
    if options.runs_older_than is not None:
        old = removal.older_than(context.store, options.runs_older_than)
        runs = removal.remove(context.store, old, dry_run=options.dry_run)
    freed = [Freed(kind="run", name=each.run_id, amount=each.amount) for each in runs]
    found = dataclasses.replace(found, freed=(*found.freed, *freed))
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
