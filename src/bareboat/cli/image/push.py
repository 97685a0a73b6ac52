"""bareboat image push: push an image to a registry."""

from __future__ import annotations

import argparse
import os

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import access, add_access, add_image, find
from bareboat_base.errors import UsageError

EXAMPLE = "bareboat image push digits registry.example.org/me/digits:1"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser)
    parser.add_argument("reference", metavar="REFERENCE", help="destination: REGISTRY/NAME:TAG")
    add_access(parser)


def run(context: Context) -> int:
    from bareboat_images.oci.reference import parse
    from bareboat_images.toolkit import push
    from bareboat_images.transfer.options import PullOptions

    options = context.options
    image = find(context, options.image)
    to = parse(options.reference, folder=os.getcwd())
    if not to.registry:
        raise UsageError(
            f"{options.reference!r} is not a registry reference",
            remedy=f"bareboat image save {options.image} {options.reference}",
        )
    reach = PullOptions(access=access(context, to.registry), progress=context.progress.bytes)
    try:
        pushed = push(image, context.store, options.reference, options=reach)
    finally:
        context.progress.end()
    if options.json:
        console.result_json(pushed)
        return 0
    console.result(
        f"{console.bold(pushed.digest)}\n  {to}: {pushed.sent} blobs uploaded "
        f"({pushed.sent_bytes / 1e6:,.1f} MB), {pushed.there} already there"
    )
    if not pushed.same_digest:
        console.note(
            "note: the image's source is unreachable, so the layers were compressed again: "
            f"the files are the same, but the digest differs from {image.digest}"
        )
    return 0
