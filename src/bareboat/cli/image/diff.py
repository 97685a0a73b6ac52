"""bareboat image diff: compare the packages, files and configuration of two images."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bareboat.cli import console
from bareboat.cli.argument_parser import number
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import find, title
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.comparison import Differences

EXAMPLE = "bareboat image diff pytorch:24.05 pytorch:24.06"

_MOST_FOLDERS = 15
_MARKS = {"added": "+", "removed": "-", "changed": "~"}


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("image", metavar="A", help="name, digest or reference of an image in the store")
    parser.add_argument("other_image", metavar="B", help="the image to compare with it")
    parser.add_argument("--files", action="store_true", help="list each file that differs")
    parser.add_argument(
        "--depth",
        metavar="N",
        type=number("--depth"),
        default=2,
        help="levels of directories by which files are counted (default: 2)",
    )


def run(context: Context) -> int:
    """Exit with 0, whether anything differs or not."""
    from bareboat_images import comparison

    options = context.options
    images = find(context, options.image), find(context, options.other_image)
    try:
        found = comparison.compare(context.store, images, context.progress.say)
    finally:
        context.progress.end()
    if options.json:
        directories = found.directories(options.depth)
        document: dict[str, Any] = {
            "first": images[0].digest,
            "second": images[1].digest,
            "identical": not (found or found.unreadable),
            "configuration": found.settings,
            "packages": [{"state": each.state, **structs.asdict(each)} for each in found.packages],
            "directories": [{"path": path, **counts} for path, counts in directories],
            "files": found.files if options.files else None,
            "summary": found.summary(),
            "warnings": found.warnings,
        }
        console.result_json(document)
        return 0
    console.result(_text(images, found, depth=options.depth, every=options.files))
    if found.unreadable:
        console.result(f"not compared, because you may not read them: {len(found.unreadable):,} paths")
    for warning in found.warnings[:10]:
        context.progress.warn(f"warning: {one_line(warning)}")
    return 0


def _text(images: tuple[Image, Image], found: Differences, *, depth: int, every: bool) -> str:
    lines = [f"- {title(images[0])}", f"+ {title(images[1])}"]
    if not found:
        same = "the same image" if images[0].digest == images[1].digest else "different digests"
        return "\n".join([*lines, f"no differences in configuration, packages and files ({same})"])
    if found.settings:
        lines += ["", console.bold("configuration")]
    for setting in found.settings:
        name = setting.name if setting.kind == "setting" else f"{setting.kind} {setting.name}"
        for mark, value in (("-", setting.before), ("+", setting.after)):
            lines += [] if value is None else [f"{mark} {one_line(name)}: {one_line(value, limit=2000)}"]
    for kind in dict.fromkeys(each.title for each in found.packages):
        rows = [
            (_MARKS[each.state], each.name, ", ".join(each.before) or "-", ", ".join(each.after) or "-")
            for each in found.packages
            if each.title == kind
        ]
        lines += ["", console.bold(f"{kind} packages: {len(rows):,} differ")]
        lines.append(console.table([("", "package", "A", "B"), *rows]))
    if found.files:
        lines += ["", console.bold("files"), _files(found, depth)]
    if every:
        lines.append("")
        for each in found.files:
            what = "" if each.what == "file" else f"  ({each.what})"
            lines.append(
                f"{_MARKS[each.state]} {each.size_bytes:>13,}  {one_line(each.path, limit=1000)}{what}"
            )
    return "\n".join(lines)


def _files(found: Differences, depth: int) -> str:
    folders = found.directories(depth)
    rows = [("added", "bytes", "removed", "bytes", "changed", "bytes", "directory")]
    for path, counts in (("all", found.summary()), *folders[:_MOST_FOLDERS]):
        rows.append((*_counts(counts), one_line(path)))
    if rest := folders[_MOST_FOLDERS:]:
        summed = {key: sum(counts[key] for _, counts in rest) for key in rest[0][1]}
        rows.append((*_counts(summed), f"{len(rest)} more (--files)"))
    return console.table(rows, right=(0, 1, 2, 3, 4, 5))


def _counts(counts: dict[str, int]) -> tuple[str, str, str, str, str, str]:
    from bareboat_base.units import megabytes

    cells = []
    for state in _MARKS:
        count, size = counts[state], counts[f"{state}_bytes"]
        cells += [f"{count:,}" if count else "", megabytes(size) if count else ""]
    return cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]
