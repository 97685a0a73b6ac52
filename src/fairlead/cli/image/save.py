"""fairlead image save: one file for a machine without a network."""

from __future__ import annotations

import argparse

from fairlead.cli import console
from fairlead.cli.common import Context, add_common
from fairlead.cli.image.common import add_image, check_output, find

EXAMPLE = "fairlead image save pytorch pytorch.tar"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser)
    parser.add_argument("file", metavar="FILE", help="the bundle; also an OCI archive for other tools")


def run(context: Context) -> int:
    from fairlead.images import bundle

    options, store = context.options, context.store
    image = find(context, options.image)
    path = check_output(options.file)
    called = [pin for pin in store.pins() if pin.digest == image.digest]
    names = [name for name, digest in store.names().items() if digest == image.digest]
    try:
        bundle.save(
            image, called, store, path, name=names[0] if names else "image", progress=context.progress.bytes
        )
    finally:
        context.progress.end()
    size = path.stat().st_size
    if options.json:
        console.result_json({"file": str(path), "bytes": size, "image": image.digest, "pins": called})
    else:
        console.result(
            f"{path}: {size / 1e6:,.0f} MB\n"
            f"  on the other side: tar -xf {path.name} fairlead && sh fairlead/install.sh && "
            f"fairlead/venv/bin/fairlead image load {path.name}"
        )
    return 0
