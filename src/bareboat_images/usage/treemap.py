"""Draws what uses space in an image: a treemap as one SVG file without scripts or references, for light and
dark screens. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass

from bareboat_base.printable import one_line
from bareboat_images.usage.folders import Folder, Weight
from bareboat_images.usage.squares import Box, divide

WIDTH, HEIGHT = 1200, 800
_TOP, _BOTTOM = 34, 30
_HEADER, _INSET = 15, 2
#: Smaller rectangles are not divided; the smallest of a directory are merged.
_LEAST_WIDTH, _LEAST_HEIGHT, _LEAST_AREA = 44.0, 32.0, 24.0
_FONT_PX, _CHARACTER_PX = 11, 6.3
_DEEPEST = 60

#: Kind of package -> its class in the style sheet and its name in the legend.
KINDS = {
    "deb": ("system", "Debian packages"),
    "rpm": ("system", "RPM packages"),
    "apk": ("system", "apk packages"),
    "conda": ("conda", "conda packages"),
    "pypi": ("python", "Python packages"),
    "cran": ("r", "R packages"),
    "": ("none", "no package"),
}
_STYLE = """
text{font:11px system-ui,sans-serif;fill:#1c2329}
.title{font-size:15px;font-weight:600}
.page{fill:#fff}
.frame{fill:#f1f3f5;stroke:#8d98a3}
.leaf{stroke:#fff}
.system{fill:#a9cbe8}.conda{fill:#b3dec2}.python{fill:#f5d896}.r{fill:#dac6e8}.none{fill:#d5dbe0}
@media(prefers-color-scheme:dark){
text{fill:#f0f3f6}
.page{fill:#12171c}
.frame{fill:#222a31;stroke:#5b6670}
.leaf{stroke:#12171c}
.system{fill:#1d4f7d}.conda{fill:#1d5a3b}.python{fill:#6a4a0a}.r{fill:#57376e}.none{fill:#434d56}
}
"""


@dataclass(frozen=True, slots=True)
class _Item:
    """One rectangle: a directory, or files of a directory. `kind`: the kind of most of its bytes."""

    label: str
    path: str
    weight: Weight
    kind: str
    folder: Folder | None


def draw(root: Folder, *, title: str, kinds: Mapping[str, int]) -> str:
    """The SVG file. `kinds`: bytes by kind of package, for the legend. Equal input gives equal text."""
    shown = one_line(title, limit=120)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="{html.escape(shown)}">',
        f"<title>{html.escape(shown)}</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="8" y="22">{html.escape(_cut(shown, WIDTH - 16, 8.4))}</text>',
    ]
    box = Box(4, _TOP, WIDTH - 8, HEIGHT - _TOP - _BOTTOM)
    _place(parts, _item(root), box, 0)
    parts += _legend(kinds)
    parts.append("</svg>\n")
    return "\n".join(parts)


def _item(folder: Folder) -> _Item:
    """A directory; a chain of directories without other entries is merged."""
    label, inner = folder.name, folder
    while len(inner.folders) == 1 and not inner.own.files and inner.path.count("/") < _DEEPEST:
        inner = inner.folders[0]
        label = f"{label.rstrip('/')}/{inner.name}"
    return _Item(label, inner.path, folder.total, _main(folder.by_owner), inner)


def _main(by_owner: Mapping[str, int]) -> str:
    return max(by_owner, key=lambda kind: (by_owner[kind], kind), default="")


def _items(folder: Folder) -> list[_Item]:
    """The entries of a directory, largest first."""
    items = [_item(each) for each in folder.folders if each.total.size_bytes]
    if folder.own.size_bytes:
        own = dict(folder.by_owner)
        for each in folder.folders:
            for kind, size in each.by_owner.items():
                own[kind] = own.get(kind, 0) - size
        items.append(_Item("files", folder.path, folder.own, _main(own), None))
    return sorted(items, key=lambda each: (-each.weight.size_bytes, each.path, each.label))


def _place(parts: list[str], item: _Item, box: Box, depth: int) -> None:
    items = _items(item.folder) if item.folder is not None else []
    if (
        not items
        or (len(items) == 1 and items[0].folder is None)
        or box.width < _LEAST_WIDTH
        or box.height < _LEAST_HEIGHT
        or depth > _DEEPEST
    ):
        _rectangle(parts, item, box, f"leaf {KINDS.get(item.kind, KINDS[''])[0]}")
        return
    _rectangle(parts, item, box, "frame")
    inner = Box(
        box.x + _INSET,
        box.y + _HEADER,
        box.width - 2 * _INSET,
        box.height - _HEADER - _INSET,
    )
    items = _merged(items, inner)
    for each, place in zip(items, divide([float(i.weight.size_bytes) for i in items], inner), strict=True):
        _place(parts, each, place, depth + 1)


def _merged(items: list[_Item], box: Box) -> list[_Item]:
    """The items, with those too small to see merged into one."""
    total = sum(each.weight.size_bytes for each in items)
    least = _LEAST_AREA / max(box.width * box.height, 1.0) * total
    small = [each for each in items if each.weight.size_bytes < least]
    if len(small) < 2:
        return items
    weight = Weight()
    by_kind: dict[str, int] = {}
    for each in small:
        weight.add(each.weight)
        by_kind[each.kind] = by_kind.get(each.kind, 0) + each.weight.size_bytes
    path = small[0].path.rpartition("/")[0] or "/"
    rest = _Item(f"{len(small)} smaller", path, weight, _main(by_kind), None)
    kept = [each for each in items if each.weight.size_bytes >= least]
    return sorted([*kept, rest], key=lambda each: -each.weight.size_bytes)


def _rectangle(parts: list[str], item: _Item, box: Box, style: str) -> None:
    name = one_line(item.path, limit=300) + (f": {item.label}" if item.folder is None else "")
    what = f"{name}\n{amount(item.weight)}"
    label = one_line(item.label)
    sized = f"{label} {megabytes(item.weight.size_bytes)}"
    room = box.width - 6
    text = sized if len(sized) * _CHARACTER_PX <= room else _cut(label, room, _CHARACTER_PX)
    text = text if box.height >= _FONT_PX + 3 else ""
    parts.append(
        f'<g><title>{html.escape(what)}</title><rect class="{style}" x="{box.x:.1f}" y="{box.y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}"/>'
        + (f'<text x="{box.x + 3:.1f}" y="{box.y + 11.5:.1f}">{html.escape(text)}</text>' if text else "")
        + "</g>"
    )


def _cut(text: str, width: float, character: float) -> str:
    """As much of the text as fits; "" if that is too little to read."""
    most = int(width / character)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…" if most >= 4 else ""


def _legend(kinds: Mapping[str, int]) -> list[str]:
    parts = []
    x = 8.0
    for kind, (style, name) in KINDS.items():
        if not kinds.get(kind):
            continue
        text = f"{name} {megabytes(kinds[kind])}"
        y = HEIGHT - 20
        parts.append(f'<rect class="{style}" x="{x:.0f}" y="{y}" width="12" height="12"/>')
        parts.append(f'<text x="{x + 17:.0f}" y="{y + 10}">{html.escape(text)}</text>')
        x += 17 + len(text) * _CHARACTER_PX + 24
    return parts


def megabytes(size: int) -> str:
    """Format bytes for display."""
    if size >= 100_000:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e3:,.1f} kB" if size >= 100 else f"{size} B"


def amount(weight: Weight) -> str:
    """Format bytes and files for display."""
    return f"{megabytes(weight.size_bytes)}, {weight.files:,} files"
