"""bareboat image save IMAGE FORMAT:PATH: write an image in another tool's format."""

from __future__ import annotations

import os
from pathlib import Path

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.image.common import blobs, find
from bareboat.model import Image

TARGETS = (
    "sif:FILE, squashfs:FILE, oci-archive:FILE, docker-archive:FILE, rootfs:DIR, docker-daemon:NAME or "
    "containers-storage:NAME"
)


def run(context: Context, kind: str, place: str) -> int:
    from bareboat_images.transfer import save
    from bareboat_images.transfer.export import LayerForm

    options = context.options
    place = save.checked(kind, place)
    image = find(context, options.image)
    found = blobs(context, image)
    try:
        digest = save.save(
            context.store,
            image,
            kind,
            place,
            name=_name(context, image),
            form=LayerForm(blobs=found, rewrite=options.rewrite),
            progress=context.progress.bytes,
        )
    finally:
        found.close()
        context.progress.end()
    if options.json:
        console.result_json({"target": f"{kind}:{place}", "image": image.digest, "digest": digest})
    elif os.path.isabs(place):
        grown = f": {os.path.getsize(place) / 1e6:,.0f} MB" if Path(place).is_file() else ""
        console.result(f"{place}{grown}" + (f"\n  {digest}" if kind == "oci-archive" else ""))
        if digest != image.digest:
            console.note(f"note: the files are the same, but the digest differs from {image.digest}")
    else:
        console.result(f"{kind}:{place}")
    return 0


def _name(context: Context, image: Image) -> str:
    """What the image is called in the store, for the archive."""
    names = [name for name, digest in context.store.names().items() if digest == image.digest]
    asked = context.options.image
    known = asked if asked in names else next(iter(names), "image")
    return known if ":" in known else f"{known}:latest"
