"""bareboat image tree: show what takes space in an image, by directory and by package."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bareboat.cli import console
from bareboat.cli.command_line import number
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_image, find, title
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.sbom.owners import Owner
    from bareboat_images.usage.folders import Folder, Weight

EXAMPLE = "bareboat image tree pytorch --depth 3"

#: Directories with a smaller share are shown as one line.
_LEAST_SHARE = 0.01
_MOST_PACKAGES = 15


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser)
    parser.add_argument(
        "--depth", metavar="N", type=number("--depth"), default=2, help="levels of directories (default: 2)"
    )
    parser.add_argument(
        "--all", action="store_true", help="list all directories of these levels and packages"
    )


def run(context: Context) -> int:
    from bareboat_images.layers.view import View
    from bareboat_images.sbom.owners import Owners
    from bareboat_images.usage import folders

    options, store = context.options, context.store
    image = find(context, options.image)
    by_package: dict[Owner, Weight] = {}
    try:
        with store.guarded():
            view = View(store.trees(image))
            context.progress.say("reading lists of packages")
            owners = Owners(view)

            def count(file: str, size: int) -> None:
                weight = by_package.setdefault(owners.of(file), folders.Weight())
                weight.size_bytes += size
                weight.files += 1

            root = folders.weigh(view, each_file=count, progress=context.progress.say)
    finally:
        context.progress.end()
    packages = sorted(by_package.items(), key=lambda each: (-each[1].size_bytes, each[0]))
    warnings = [*owners.warnings, *(f"{folder} cannot be read by this user" for folder in view.unreadable)]
    if options.json:
        console.result_json(_document(image, root, packages, warnings, options.depth))
        return 0
    console.result(_text(image, root, packages, depth=options.depth, every=options.all))
    for warning in warnings[:10]:
        context.progress.warn(f"warning: {one_line(warning)}")
    return 0


def _document(
    image: Image, root: Folder, packages: list[tuple[Owner, Weight]], warnings: list[str], depth: int
) -> dict[str, Any]:
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
        "tree": described(root, depth),
        "packages": [
            {"kind": kind or None, "name": name or None, "size_bytes": each.size_bytes, "files": each.files}
            for (kind, name), each in packages
        ],
        "warnings": warnings,
    }


def _text(
    image: Image, root: Folder, packages: list[tuple[Owner, Weight]], *, depth: int, every: bool
) -> str:
    from bareboat_images.comparison.packages import KINDS

    total = max(root.total.size_bytes, 1)
    rows = [("size", "share", "files", "directory"), _row(root.total, total, "/")]
    _add(rows, root, total, depth, 1, every=every)
    lines = [console.bold(title(image)), console.table(rows, right=(0, 1, 2))]
    rows = [("size", "share", "files", "package")]
    shown = packages if every else packages[:_MOST_PACKAGES]
    for (kind, name), weight in shown:
        rows.append(_row(weight, total, f"{name} ({KINDS.get(kind, kind)})" if kind else "no package"))
    if rest := packages[len(shown) :]:
        rows.append(_row(_sum([weight for _, weight in rest]), total, f"{len(rest):,} more packages (--all)"))
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
        rows.append(_row(_sum([each.total for each in rest]), total, f"{indent}({len(rest)} smaller)"))
    if folder.own.size_bytes >= _LEAST_SHARE * total or (every and folder.own.files):
        rows.append(_row(folder.own, total, f"{indent}(files)"))


def _row(weight: Weight, total: int, label: str) -> tuple[str, str, str, str]:
    from bareboat_base.units import megabytes

    return megabytes(weight.size_bytes), f"{weight.size_bytes / total:.0%}", f"{weight.files:,}", label


def _sum(weights: list[Weight]) -> Weight:
    from bareboat_images.usage.folders import Weight

    found = Weight()
    for each in weights:
        found.add(each)
    return found
