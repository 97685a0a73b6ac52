"""bareboat image convert: write an image in another tool's format."""

from __future__ import annotations

import argparse
import os

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_digest, add_image, blobs, find
from bareboat.errors import UsageError
from bareboat.files import outputs

EXAMPLE = "bareboat image convert pytorch sif:pytorch.sif"

_TARGETS = "sif:FILE, squashfs:FILE, oci-archive:FILE or rootfs:DIR"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser)
    parser.add_argument("target", metavar="TARGET", help=_TARGETS)
    add_digest(parser)


def run(context: Context) -> int:
    from bareboat.images.formats import squash
    from bareboat.images.layers.flatten import copy, make_flat
    from bareboat.images.oci import export

    options, store = context.options, context.store
    kind, colon, place = options.target.partition(":")
    if not colon or not place or kind not in ("sif", "squashfs", "oci-archive", "rootfs"):
        raise UsageError(f"{options.target!r} is not a target", remedy=f"use {_TARGETS}")
    path = outputs.check(place, is_folder=kind == "rootfs")
    image = find(context, options.image)
    if kind in ("oci-archive", "rootfs"):  # the size of the other formats is unknown in advance
        outputs.check_room(path, image.size_bytes)
    progress = context.progress.bytes
    name = image.reference.rpartition("/")[2].partition(":")[0].partition("@")[0] or "image"
    digest = image.digest
    found = blobs(context, image)
    try:
        with store.guarded():
            match kind:
                case "oci-archive":
                    saved = export.save_archive(
                        store,
                        image,
                        path,
                        name=name,
                        blobs=found,
                        rewrite=options.rewrite,
                        whole=True,
                        progress=progress,
                    )
                    digest = saved.digest
                case "sif":
                    with store.scratch() as scratch:
                        export.save_archive(
                            store, image, scratch / "image.tar", name=name, rewrite=True, progress=progress
                        )
                        squash.make_sif(scratch / "image.tar", path, progress=progress)
                case "squashfs":
                    context.progress.say("unpacking the image")
                    squash.make_squashfs(make_flat(store, image), path, progress=progress)
                case _:
                    context.progress.say("copying files")
                    with outputs.beside(path) as part:
                        copy(store.trees(image), part)
    finally:
        found.close()
        context.progress.end()
    if options.json:
        console.result_json({"target": f"{kind}:{path}", "image": image.digest, "digest": digest})
    else:
        grown = f": {os.path.getsize(path) / 1e6:,.0f} MB" if path.is_file() else ""
        console.result(f"{path}{grown}" + (f"\n  {digest}" if kind == "oci-archive" else ""))
        if digest != image.digest:
            console.note(f"note: the files are the same, but the digest differs from {image.digest}")
    return 0
