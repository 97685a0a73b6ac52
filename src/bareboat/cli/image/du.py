"""bareboat image du: show the space that images use and share, or what takes space in one."""

from __future__ import annotations

import argparse
import functools
import operator
from typing import TYPE_CHECKING, Any

from bareboat.cli import console
from bareboat.cli.argument_parser import number
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_image, find, title
from bareboat_base import digests
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.upkeep import Amount
    from bareboat_images.usage import ImageUse
    from bareboat_images.usage.folders import Folder, Weight

EXAMPLE = "bareboat image du\n  bareboat image du pytorch --depth 3"

#: Directories with a smaller share are shown as one line.
_LEAST_SHARE = 0.01
_MOST_PACKAGES = 15


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser, nargs="?")
    parser.add_argument(
        "--depth",
        metavar="N",
        type=number("--depth"),
        help="levels of directories of IMAGE (default: 2)",
    )
    parser.add_argument(
        "--all", action="store_true", help="list all directories of these levels, and all packages"
    )


def run(context: Context) -> int:
    options = context.options
    if options.image is not None:
        return _of_image(context)
    if options.depth is not None or options.all:
        given = "--all" if options.depth is None else f"--depth {options.depth}"
        raise UsageError(
            f"{given.partition(' ')[0]} is about the directories of one image, and no image is named",
            remedy=f"bareboat image du IMAGE {given}   # bareboat image ls lists the images",
        )
    return _of_store(context)


def _of_store(context: Context) -> int:
    from bareboat_images import upkeep

    found = upkeep.usage(context.store)
    if context.options.json:
        console.result_json(found)
        return 0
    rows = [("what", "own", "files", "shared", "files", "name")]
    for image in found.images:
        rows.append((
            digests.short(image.digest), _mb(image.own), f"{image.own.inodes:,}", _mb(image.shared),
            f"{image.shared.inodes:,}", ", ".join(image.names) or "-",
        ))  # fmt: skip
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
    rows += [(name, _mb(each), f"{each.inodes:,}", "", "", "") for name, each in others]
    console.result(console.table(rows, right=(1, 2, 3, 4)))
    if found.unreadable:
        more = f" and {len(found.unreadable) - 1:,} more" if len(found.unreadable) > 1 else ""
        console.warn(f"not counted, because you may not read it: {found.unreadable[0]}{more}")
    if found.unused.inodes:
        console.note("remove unused layers with: bareboat image rm --unused")
    return 0


def _mb(amount: Amount) -> str:
    return f"{amount.size_bytes / 1e6:,.1f} MB"


def _of_image(context: Context) -> int:
    from bareboat_images import usage

    options = context.options
    depth = 2 if options.depth is None else options.depth
    image = find(context, options.image)
    try:
        found = usage.measure(context.store, image, context.progress.say)
    finally:
        context.progress.end()
    if options.json:
        console.result_json(_document(image, found, depth))
        return 0
    console.result(_text(image, found, depth=depth, every=options.all))
    for warning in found.warnings[:10]:
        context.progress.warn(f"warning: {one_line(warning)}")
    return 0


def _document(image: Image, found: ImageUse, depth: int) -> dict[str, Any]:
    def described(folder: Folder, left: int) -> dict[str, Any]:
        return {
            "path": folder.path,
            "size_bytes": folder.total.size_bytes,
            "files": folder.total.files,
            "directories": folder.total.folders,
            "inside": [described(each, left - 1) for each in folder.largest()] if left > 0 else [],
        }

    return {
        "digest": image.digest,
        "tree": described(found.root, depth),
        "packages": [
            {
                "kind": each.kind or None,
                "name": each.name or None,
                "size_bytes": each.weight.size_bytes,
                "files": each.weight.files,
            }
            for each in found.packages
        ],
        "warnings": found.warnings,
    }


def _text(image: Image, found: ImageUse, *, depth: int, every: bool) -> str:
    root, packages = found.root, found.packages
    total = max(root.total.size_bytes, 1)
    rows = [("size", "share", "files", "directory"), _row(root.total, total, "/")]
    _add(rows, root, total, depth, 1, every=every)
    lines = [console.bold(title(image)), console.table(rows, right=(0, 1, 2))]
    rows = [("size", "share", "files", "package")]
    shown = packages if every else packages[:_MOST_PACKAGES]
    for each in shown:
        rows.append(_row(each.weight, total, f"{each.name} ({each.title})" if each.kind else "no package"))
    if rest := packages[len(shown) :]:
        others = functools.reduce(operator.add, (each.weight for each in rest))
        rows.append(_row(others, total, f"{len(rest):,} more packages (--all)"))
    return "\n".join([*lines, "", console.table(rows, right=(0, 1, 2))])


def _add(
    rows: list[tuple[str, str, str, str]], folder: Folder, total: int, depth: int, level: int, *, every: bool
) -> None:
    """The rows below a directory, largest first; small ones as one row, and the directory's own files."""
    if level > depth:
        return
    inner = folder.largest()
    shown = [each for each in inner if every or each.total.size_bytes >= _LEAST_SHARE * total]
    indent = "  " * level
    for each in shown:
        rows.append(_row(each.total, total, f"{indent}{one_line(each.name, limit=60)}"))
        _add(rows, each, total, depth, level + 1, every=every)
    if rest := inner[len(shown) :]:
        others = functools.reduce(operator.add, (each.total for each in rest))
        rows.append(_row(others, total, f"{indent}({len(rest)} smaller)"))
    if folder.own.size_bytes >= _LEAST_SHARE * total or (every and folder.own.files):
        rows.append(_row(folder.own, total, f"{indent}(files)"))


def _row(weight: Weight, total: int, label: str) -> tuple[str, str, str, str]:
    from bareboat_base.units import megabytes

    return megabytes(weight.size_bytes), f"{weight.size_bytes / total:.0%}", f"{weight.files:,}", label
