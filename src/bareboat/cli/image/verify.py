"""bareboat image verify: compare an image's files with their digests."""

from __future__ import annotations

import argparse

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_image, find, title
from bareboat_base import digests
from bareboat_base.errors import StoreError

EXAMPLE = "bareboat image verify pytorch"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser)


def run(context: Context) -> int:
    """Exit with 0 when all files match their digests, 4 when one does not."""
    from bareboat_images import upkeep

    image = find(context, context.options.image)
    try:
        found = upkeep.verify(context.store, image, progress=context.progress.bytes)
    finally:
        context.progress.end()
    if context.options.json:
        console.result_json(found)
        return 0 if found.ok else StoreError.code
    lines = []
    for layer in found.layers:
        lines.append(f"  {layer.state.value:<10} {digests.short(layer.diff_id)}  {layer.detail}".rstrip())
        lines += [f"    {path}" for path in layer.files]
    lines += [f"  damaged    {name}" for name in (*found.documents, *found.packed)]
    if not found.ok:
        raise StoreError(
            f"{title(image)} does not match its digests", context="\n".join(lines), remedy=found.remedy
        )
    console.result("\n".join([console.bold(title(image)), *lines]))
    return 0
