"""bareboat image ls: list the store's images."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat_base import digests
from bareboat_base.errors import StoreError
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Image

EXAMPLE = "bareboat image ls"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def run(context: Context) -> int:
    """Exit with 4 where an image's entry is damaged."""
    store = context.store
    damaged: list[tuple[Path, str]] = []
    images, names, pins = store.images(damaged), store.names(), store.pins()
    code = StoreError.code if damaged else 0
    if context.options.json:
        entries = [{"path": str(path), "reason": reason} for path, reason in damaged]
        console.result_json({"images": images, "names": names, "pins": pins, "damaged": entries})
        return code
    if not images and not damaged:
        console.note(
            f"no images in {store.root}; try: bareboat image pull REFERENCE, or bareboat image capture"
        )
        return 0
    rows = [("image", "name", "size", "files", "reference")]
    for image in images:
        own = ", ".join(name for name, digest in names.items() if digest == image.digest)
        pinned = [pin.reference for pin in pins if pin.digest == image.digest]
        more = f" and {len(pinned) - 1} more" if len(pinned) > 1 else ""
        rows.append(
            (
                digests.short(image.digest),
                own or "-",
                f"{image.size_bytes / 1e6:,.0f} MB",
                f"{image.inodes:,}",
                (pinned or [image.reference or _origin(image)])[0] + more,
            )
        )
    for path, reason in damaged:
        digest = digests.of_digits(path.stem)
        own = ", ".join(name for name, named in names.items() if named == digest)
        label = digests.short(digest) if digest else path.stem
        rows.append((label, own or "-", "-", "-", f"damaged: {one_line(reason, limit=1000)}"))
    console.result(console.table(rows, right=(2, 3)))
    if damaged:
        console.note("damaged images: pull or capture them again, or remove them: bareboat image rm IMAGE")
    return code


def _origin(image: Image) -> str:
    if image.site_layer is not None:
        return f"site layer on {digests.short(image.site_layer.base)}"
    if image.built:
        return "built"
    environment = os.path.dirname(os.path.dirname(image.python or ""))
    version = f", Python {image.python_version}" if image.python_version else ""
    return f"captured from {environment}{version}" if environment else "captured"
