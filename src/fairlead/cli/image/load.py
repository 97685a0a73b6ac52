"""fairlead image load: take in a bundle, or any tool's archive."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import msgspec

from fairlead.cli import console
from fairlead.cli.common import Context, add_common
from fairlead.cli.image.common import add_limits, limits

EXAMPLE = "fairlead image load pytorch.tar"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("file", metavar="FILE", help="what `fairlead image save` or `podman save` wrote")
    parser.add_argument("--name", metavar="NAME", help="give the image a name in the store")
    add_limits(parser)


def run(context: Context) -> int:
    from fairlead.images import bundle
    from fairlead.images.obtain import obtain
    from fairlead.images.sources import layouts, reference
    from fairlead.images.sources.locate import Access

    options, store = context.options, context.store
    path = Path(options.file).absolute()
    found = reference.at_path(layouts.sniff(path), str(path), folder="/")
    called = bundle.pins(path)
    try:
        loaded = obtain(
            found,
            store,
            Access(),
            machine=os.uname().machine,
            limits=limits(context),
            progress=context.progress.bytes,
        )
    finally:
        context.progress.end()
    image = loaded.image
    for pin in called:
        store.pin(msgspec.structs.replace(pin, digest=image.digest))
    if options.name:
        store.name_image(options.name, image.digest)
    if options.json:
        console.result_json({"image": image, "pins": called})
    else:
        names = ", ".join([*(pin.reference for pin in called), *([options.name] if options.name else [])])
        console.result(
            f"{console.bold(image.digest)}\n  {names or path.name}: {image.size_bytes / 1e6:,.0f} MB, "
            f"{image.inodes:,} files and folders"
        )
    return 0
