"""bareboat image diff: compare the packages, files and configuration of two images."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bareboat.cli import console
from bareboat.cli.command_line import number
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import find, title
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.comparison.configuration import SettingChange
    from bareboat_images.comparison.files import Change
    from bareboat_images.comparison.packages import PackageChange
    from bareboat_images.inside.configuration import Configuration
    from bareboat_images.layers.view import View
    from bareboat_images.sbom.inventory import Inventory

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
    from bareboat_images.comparison import configuration, files, packages

    options, store = context.options, context.store
    images = [find(context, options.image), find(context, options.other_image)]
    settings = configuration.compare(*(_configuration(context, image) for image in images))
    try:
        with store.guarded():
            views = [_view(context, image) for image in images]
            found = [_inventory(context, image) for image in images]
            comparison = files.Comparison(*views, progress=context.progress.say)
            changes = list(comparison.changes())
    finally:
        context.progress.end()
    changed = packages.compare(found[0].packages, found[1].packages)
    warnings = list(dict.fromkeys([*found[0].warnings, *found[1].warnings]))
    warnings += [f"{path} cannot be read, and is not compared" for path in comparison.unreadable]
    folders = _by_folder(changes, options.depth)
    if options.json:
        document: dict[str, Any] = {
            "first": images[0].digest,
            "second": images[1].digest,
            "identical": not (settings or changed or changes or comparison.unreadable),
            "configuration": settings,
            "packages": [{"state": each.state, **structs.asdict(each)} for each in changed],
            "directories": [{"path": path, **counts} for path, counts in folders],
            "files": changes if options.files else None,
            "summary": _summary(changes),
            "warnings": warnings,
        }
        console.result_json(document)
        return 0
    console.result(_text(images, settings, changed, changes, folders, every=options.files))
    if comparison.unreadable:
        console.result(f"not compared, because you may not read them: {len(comparison.unreadable):,} paths")
    for warning in warnings[:10]:
        context.progress.warn(f"warning: {one_line(warning)}")
    return 0


def _configuration(context: Context, image: Image) -> Configuration:
    from bareboat_images.inside import configuration
    from bareboat_images.transfer import export

    data = export.stored_config(context.store, image)
    return configuration.read(data, layers=len(image.layers), name=image.reference or image.digest)


def _view(context: Context, image: Image) -> View:
    from bareboat_images.layers.view import View

    return View(context.store.trees(image))


def _inventory(context: Context, image: Image) -> Inventory:
    from bareboat_images.sbom import inventory

    context.progress.say(f"listing packages: {title(image)}")
    return inventory.take(context.store.trees(image))


def _by_folder(changes: list[Change], depth: int) -> list[tuple[str, dict[str, int]]]:
    """Directory, cut at a depth -> counts and bytes; those with most bytes first."""
    found: dict[str, list[Change]] = {}
    for each in changes:
        parts = each.path.split("/")[1:-1][:depth]
        found.setdefault("/" + "/".join(parts), []).append(each)
    summed = [(path, _summary(below)) for path, below in found.items()]
    return sorted(
        summed, key=lambda each: (-sum(v for k, v in each[1].items() if k.endswith("bytes")), each[0])
    )


def _summary(changes: list[Change]) -> dict[str, int]:
    """How many paths were added, removed and changed, and the bytes of added, removed and changed files; of
    changed files those of the second image."""
    found = {f"{state}{what}": 0 for state in _MARKS for what in ("", "_bytes")}
    for each in changes:
        found[each.state] += 1
        found[f"{each.state}_bytes"] += each.before_bytes if each.state == "removed" else each.after_bytes
    return found


def _text(
    images: list[Image],
    settings: list[SettingChange],
    packages: list[PackageChange],
    changes: list[Change],
    folders: list[tuple[str, dict[str, int]]],
    *,
    every: bool,
) -> str:
    from bareboat_images.comparison.packages import KINDS

    lines = [f"- {title(images[0])}", f"+ {title(images[1])}"]
    if not (settings or packages or changes):
        same = "the same image" if images[0].digest == images[1].digest else "different digests"
        return "\n".join([*lines, f"no differences in configuration, packages and files ({same})"])
    if settings:
        lines += ["", console.bold("configuration")]
        for setting in settings:
            lines += _setting(setting)
    for kind in dict.fromkeys(each.kind for each in packages):
        own = [each for each in packages if each.kind == kind]
        lines += ["", console.bold(f"{KINDS.get(kind, kind)} packages: {len(own):,} differ")]
        lines.append(_packages(own))
    if changes:
        lines += ["", console.bold("files"), _files(changes, folders)]
    if every:
        lines += ["", *(_line(each) for each in changes)]
    return "\n".join(lines)


def _setting(each: SettingChange) -> list[str]:
    name = each.name if each.kind == "setting" else f"{each.kind} {each.name}"
    lines = []
    for mark, value in (("-", each.before), ("+", each.after)):
        if value is not None:
            lines.append(f"{mark} {one_line(name)}: {one_line(value, limit=2000)}")
    return lines


def _packages(changes: list[PackageChange]) -> str:
    rows = [("", "package", "A", "B")]
    for each in changes:
        rows.append(
            (_MARKS[each.state], each.name, ", ".join(each.before) or "-", ", ".join(each.after) or "-")
        )
    return console.table(rows)


def _files(changes: list[Change], folders: list[tuple[str, dict[str, int]]]) -> str:
    rows = [("added", "bytes", "removed", "bytes", "changed", "bytes", "directory")]
    for path, counts in (("all", _summary(changes)), *folders[:_MOST_FOLDERS]):
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


def _line(each: Change) -> str:
    size = each.before_bytes if each.state == "removed" else each.after_bytes
    what = "" if each.what == "file" else f"  ({each.what})"
    return f"{_MARKS[each.state]} {size:>13,}  {one_line(each.path, limit=1000)}{what}"
