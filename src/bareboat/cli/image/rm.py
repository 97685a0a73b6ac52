"""bareboat image rm: remove a name, or an image."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.cli.image.common import add_image, size
from bareboat_base import digests
from bareboat_base.errors import BareboatError

if TYPE_CHECKING:
    from bareboat_images.store import Store

EXAMPLE = "bareboat image rm pytorch"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser, many=True)
    parser.add_argument("--force", action="store_true", help="also remove an image that a run uses")
    add_dry_run(parser)


def _check_unused(store: Store, wanted: list[str]) -> None:
    """Raise BareboatError for an image of a run that has not ended."""
    from bareboat.runs import studies, submission, sweeps

    for digest in wanted:
        for job in studies.registered().live_jobs_of_image(store, digest):
            raise BareboatError(
                f"{digests.short(digest)} is in use: the job of {job} has not ended; nothing was removed",
                remedy=f"bareboat cancel {job}; --force removes the image anyway",
            )
    names = [
        name for name in submission.submitted(store) if not os.path.lexists(store.run(name) / "record.json")
    ]
    for status in sweeps.look(store, names, must_answer=False):
        if status.over or status.submission.image_digest not in wanted:
            continue
        digest, run_id = digests.short(status.submission.image_digest), status.submission.run_id
        raise BareboatError(
            f"{digest} is in use: {run_id} is {status.state.value}; nothing was removed",
            remedy=f"bareboat wait {run_id}, or bareboat cancel {run_id}; --force removes the image anyway",
        )


def run(context: Context) -> int:
    from bareboat_images import upkeep

    store = context.store
    images = dict.fromkeys(context.options.image)
    # All are looked up before the first is removed.
    meant = [upkeep.meant(store, text)[0] for text in images]
    if not context.options.force:
        _check_unused(store, meant)
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
            freed = "" if dry_run else f": {size(each.amount)} freed"
            console.result(f"{verb} {digests.short(each.digest)} ({names}){freed}")
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
