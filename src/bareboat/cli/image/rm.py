"""bareboat image rm: remove a name, an image, or unused data."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from bareboat.cli import console
from bareboat.cli.argument_parser import number
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.cli.image.common import add_image, size
from bareboat_base import digests
from bareboat_base.errors import BareboatError, UsageError

if TYPE_CHECKING:
    from bareboat_images.store import Store
    from bareboat_images.upkeep import Collected

EXAMPLE = "bareboat image rm pytorch\n  bareboat image rm --unused --older-than 30 --dry-run"
_UNUSED = ("older_than", "runs_older_than", "build_cache")


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser, nargs="*")
    parser.add_argument("--force", action="store_true", help="also remove an image that is in use")
    parser.add_argument(
        "--unused", action="store_true", help="remove layers, files and trees that no image and no run needs"
    )
    parser.add_argument(
        "--older-than",
        metavar="DAYS",
        type=number("--older-than"),
        help="of --unused: also remove images without a name or a pin that are older than this",
    )
    parser.add_argument(
        "--runs-older-than",
        metavar="DAYS",
        type=number("--runs-older-than"),
        help="of --unused: also remove runs that ended and have not changed for so long",
    )
    parser.add_argument(
        "--build-cache",
        action="store_true",
        help="of --unused: also remove the results of build steps and cache mounts",
    )
    add_dry_run(parser)


def _users(store: Store) -> Iterator[tuple[str, str, str]]:
    """The images of runs that have not ended and of studies with runs left, by what, and what ends that."""
    from bareboat.runs import submission, sweeps
    from bareboat_study import matrix

    for study in matrix.unfinished(store):
        for image in study.images:
            remedy = f"bareboat prove --resume {study.id}, or bareboat rm {study.id}"
            yield image.digest, f"{study.id} has runs left", remedy
    names = [
        name for name in submission.submitted(store) if not os.path.lexists(store.run(name) / "record.json")
    ]
    for status in sweeps.look(store, names, must_answer=False):
        run_id = status.submission.run_id
        if not status.over:
            remedy = f"bareboat wait {run_id}, or bareboat cancel {run_id}"
            yield status.submission.image_digest or "", f"{run_id} is {status.state.value}", remedy


def run(context: Context) -> int:
    options = context.options
    if options.unused:
        if options.image:
            raise UsageError(
                "--unused removes what no image needs, and images are named beside it",
                remedy=f"bareboat image rm {shlex.join(options.image)}   # or --unused alone",
            )
        return _remove_unused(context)
    for name in _UNUSED:
        if (value := vars(options)[name]) is not None and value is not False:
            flag = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value:g}")
            raise UsageError(f"{flag} requires --unused", remedy=f"bareboat image rm --unused {flag}")
    if not options.image:
        raise UsageError(
            "missing argument: IMAGE", remedy="bareboat image ls   # then: bareboat image rm IMAGE"
        )
    return _remove(context)


def _collect(context: Context, older_than_days: float | None, *, dry_run: bool) -> Collected:
    from bareboat_images import upkeep

    users = () if older_than_days is None or context.options.force else _users(context.store)
    return upkeep.collect_garbage(
        context.store,
        dry_run=dry_run,
        older_than_days=older_than_days,
        build_cache=context.options.build_cache,
        used=[(digest, f"{why}; try: {remedy}") for digest, why, remedy in users],
    )


def _remove_unused(context: Context) -> int:
    from bareboat.runs import environment
    from bareboat_images import upkeep

    options = context.options
    found = _collect(context, options.older_than, dry_run=options.dry_run)
    runs = []
    has_values = not options.dry_run and any(environment.left_behind(context.store))
    if has_values or options.runs_older_than is not None:
        from bareboat.runs import removal  # with all that queries schedulers

        if has_values:
            removal.remove_values(context.store)
        if options.runs_older_than is not None:
            old = removal.older_than(context.store, options.runs_older_than)
            runs = removal.remove(context.store, old, dry_run=options.dry_run)
    freed = [upkeep.Freed(kind="run", name=each.run_id, amount=each.amount) for each in runs]
    found = structs.replace(found, freed=(*found.freed, *freed))
    if options.json:
        console.result_json(found)
        return 0
    verb = "would free" if options.dry_run else "freed"
    for each in found.freed:
        console.result(f"  {each.kind:<16} {each.name[:71]}  {size(each.amount)}")
    console.result(f"{verb} {size(found.amount)} in {context.store.root}")
    for reason in found.kept:
        console.note(f"kept: {reason}")
    if not found.freed and context.store.images([]):
        more = _collect(context, 0, dry_run=True).amount
        if more.inodes:
            free = "bareboat image rm --unused --older-than 0"
            console.note(f"captures and images without a name take {size(more)}; remove them: {free}")
        console.note("bareboat image du shows what takes space; bareboat image rm NAME removes an image")
    return 0


def _remove(context: Context) -> int:
    from bareboat_images import upkeep

    store = context.store
    images = dict.fromkeys(context.options.image)
    # All are looked up before the first is removed.
    meant = [upkeep.meant(store, text)[0] for text in images]
    for digest, why, remedy in () if context.options.force else _users(store):
        if digest in meant:
            raise BareboatError(
                f"{digests.short(digest)} is in use: {why}; nothing was removed",
                remedy=f"{remedy}; --force removes the image anyway",
            )
    known = {digest: store.image(digest) for digest in meant if store.has_image(digest)}
    dry_run = context.options.dry_run
    removed = [upkeep.remove(store, text, dry_run=dry_run) for text in images]
    if context.options.json:
        console.result_json({"removed": removed})
        return 0
    verb = "would remove" if dry_run else "removed"
    for each in removed:
        names = ", ".join(each.references) or "no name"
        if each.image_gone:
            freed = "would be freed" if dry_run else "freed"
            console.result(f"{verb} {digests.short(each.digest)} ({names}): {size(each.amount)} {freed}")
            if not dry_run and (image := known.get(each.digest)) is not None:
                kept, users = upkeep.shared_layers(store, image)
                if users:
                    console.result(f"  kept: {size(kept)} in layers of {', '.join(users)}")
        else:
            others = ", ".join(each.kept_by)
            console.result(
                f"{verb} {names}; {digests.short(each.digest)} is kept, it has other names: {others}"
            )
    return 0
