"""bareboat image du: show the space that images use and share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat_base import digests

if TYPE_CHECKING:
    from bareboat_images.upkeep import Amount

EXAMPLE = "bareboat image du"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def run(context: Context) -> int:
    from bareboat_images import upkeep

    found = upkeep.usage(context.store)
    if context.options.json:
        console.result_json(found)
        return 0
    rows = [("what", "own", "files", "shared", "files", "name")]
    for image in found.images:
        names = ", ".join(image.names) or "-"
        rows.append((digests.short(image.digest), *_cells(image.own), *_cells(image.shared), names))
    others = (
        ("unused layers", found.unused),
        ("unpacked images", found.flat),
        ("SIF and squashfs files", found.packed),
        ("documents", found.documents),
        ("partial downloads", found.parts),
        ("runs", found.runs),
        ("containers of shims", found.containers),
        ("work in progress", found.in_progress),
        ("total", found.total),
    )
    rows += [(name, *_cells(each), "", "", "") for name, each in others]
    console.result(console.table(rows, right=(1, 2, 3, 4)))
    if found.unreadable:
        more = f" and {len(found.unreadable) - 1:,} more" if len(found.unreadable) > 1 else ""
        console.warn(f"not counted, because you may not read it: {found.unreadable[0]}{more}")
    if found.unused.inodes:
        console.note("remove unused layers with: bareboat image rm --unused")
    return 0


def _cells(amount: Amount) -> tuple[str, str]:
    return f"{amount.size_bytes / 1e6:,.1f} MB", f"{amount.inodes:,}"
