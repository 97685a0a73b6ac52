"""bareboat image tag: give an image of the store another name."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.cli.image.common import find
from bareboat_base import digests
from bareboat_base.errors import StoreError

if TYPE_CHECKING:
    from bareboat_images.store import Store

EXAMPLE = "bareboat image tag pytorch pytorch:tested"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_dry_run(parser)
    parser.add_argument(
        "image",
        metavar="SOURCE",
        help="name, digest or its first digits, or the reference it was pulled by",
    )
    parser.add_argument("name", metavar="NAME[:TAG]", help="new name in the store")
    parser.add_argument(
        "--force", action="store_true", help="also replace a name that another member of the group has set"
    )


def run(context: Context) -> int:
    """Name the image; a name that another image has moves to this one."""
    options, store = context.options, context.store
    store.check_name(options.name)
    image = find(context, options.image)
    before = store.names().get(options.name)
    if before not in (None, image.digest) and not options.force:
        _check_owner(store, options.name, before or "")
    if not options.dry_run and before != image.digest:
        store.name_image(options.name, image.digest)
    if options.json:
        console.result_json({"name": options.name, "digest": image.digest, "previous": before})
        return 0
    now = "would be" if options.dry_run else "is"
    console.result(f"{options.name} {now} {digests.short(image.digest)}")
    if before not in (None, image.digest):
        context.progress.note(f"note: {_moved(store, options.name, before or '')}")
    return 0


def _check_owner(store: Store, name: str, before: str) -> None:
    """Raise StoreError for a name that another user set: in a group's store, others' jobs use it."""
    from bareboat_base.files import ownership

    owner = store.name_owner(name)
    if owner is None:
        return
    raise StoreError(
        f"the name {name} belongs to {ownership.name_of(owner)}, who gave it to {digests.short(before)}",
        context=f"jobs of other members of the group may use it; store {store.root}",
        remedy=f"choose another name; or replace it: bareboat image tag --force SOURCE {shlex.quote(name)}",
    )


def _moved(store: Store, name: str, before: str) -> str:
    """The image that a name had before it was moved."""
    others = [each for each, digest in store.names().items() if digest == before and each != name]
    others += [pin.reference for pin in store.pins() if pin.digest == before]
    short = digests.short(before) if digests.is_digest(before) else "a damaged entry"
    text = f"{name} was {short}"
    return text if others or not store.knows(before) else f"{text}, which has no other name"
