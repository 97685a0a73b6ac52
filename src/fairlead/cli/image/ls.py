"""fairlead image ls: the images of the store."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fairlead import digests
from fairlead.cli import console
from fairlead.cli.common import Context, add_common

if TYPE_CHECKING:
    from fairlead.model import Image

EXAMPLE = "fairlead image ls"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def run(context: Context) -> int:
    store = context.store
    images, names = store.images(), store.names()
    pinned = {pin.digest: pin for pin in reversed(store.pins())}
    if context.options.json:
        console.result_json({"images": images, "names": names, "pins": store.pins()})
        return 0
    if not images:
        console.note(
            f"there are no images in {store.root}; fairlead image pull REFERENCE, or fairlead capture"
        )
        return 0
    rows = [("image", "name", "size", "files", "reference")]
    for image in images:
        own = ", ".join(name for name, digest in names.items() if digest == image.digest)
        pin = pinned.get(image.digest)
        rows.append(
            (
                digests.short(image.digest),
                own or "-",
                f"{image.size_bytes / 1e6:,.0f} MB",
                f"{image.inodes:,}",
                pin.reference if pin else image.reference or _origin(image),
            )
        )
    console.result(console.table(rows, right=(2, 3)))
    return 0


def _origin(image: Image) -> str:
    if image.site_layer is not None:
        return f"site layer on {digests.short(image.site_layer.base)}"
    return "captured"
