"""bareboat image rm: remove a name, or an image."""

from __future__ import annotations

import argparse

from bareboat import digests
from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_image, size

EXAMPLE = "bareboat image rm pytorch"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser, many=True)


def run(context: Context) -> int:
    from bareboat.images import upkeep

    images = dict.fromkeys(context.options.image)
    for text in images:  # look up all images before removing the first
        upkeep.meant(context.store, text)
    removed = [upkeep.remove(context.store, text) for text in images]
    if context.options.json:
        console.result_json({"removed": removed})
        return 0
    for each in removed:
        names = ", ".join(each.references) or "no name"
        if each.image_gone:
            console.result(f"removed {digests.short(each.digest)} ({names}): {size(each.amount)} freed")
        else:
            others = ", ".join(each.kept_by)
            console.result(
                f"removed {names}; {digests.short(each.digest)} is kept, it has other names: {others}"
            )
    return 0
