"""bareboat image show --history: the steps by which an image was made, with the size of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.image.common import find
from bareboat_base import digests
from bareboat_base.printable import counted, one_line

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.inside.configuration import Step

#: Of a step's text; -v shows all.
_LONGEST = 120
#: Of reproducible builds: the zero of archives, of Unix, and of Go.
_NO_DAYS = ("1980-01-01", "1970-01-01", "0001-01-01")


def run(context: Context) -> int:
    from bareboat_images.inside import configuration

    store = context.store
    image = find(context, context.options.image)
    blobs = store.manifest(image).layers
    steps = configuration.history(store.config(image), layers=len(image.layers), name=image.digest)
    if context.options.json:
        console.result_json(
            {
                "digest": image.digest,
                "steps": [_step(step) for step in steps],
                "layers": [
                    {
                        "diff_id": layer.diff_id,
                        "size_bytes": layer.size_bytes,
                        "inodes": layer.inodes,
                        "blob": blob.digest,
                        "blob_bytes": blob.size,
                    }
                    for layer, blob in zip(image.layers, blobs, strict=True)
                ],
            }
        )
        return 0
    console.result(_text(image, steps, full=context.options.verbose))
    return 0


def _step(step: Step) -> dict[str, object]:
    return {
        "created": step.created,
        "created_by": step.created_by,
        "instruction": step.command,
        "comment": step.comment,
        "empty_layer": step.is_empty,
        "layer": None if step.layer is None else step.layer + 1,
    }


def _text(image: Image, steps: Sequence[Step], *, full: bool) -> str:
    """The steps in the order of the build; layers without an entry in the history come first."""
    rows = [("layer", "size", "files", "date", "step")]
    known = {step.layer for step in steps}
    for number, layer in enumerate(image.layers):
        if number not in known:
            rows.append((*_size(image, number), "", one_line(layer.comment) or "not in the history"))
    for step in steps:
        size = ("", "", "") if step.layer is None else _size(image, step.layer)
        text = " ".join(step.command.split()) or one_line(step.comment) or "not recorded"
        rows.append((*size, _date(step.created), text if full else one_line(text, limit=_LONGEST)))
    empty = sum(step.is_empty for step in steps)
    count, size_mb = len(image.layers), image.size_bytes / 1e6
    lines = [
        console.bold(f"{digests.short(image.digest)}  {image.reference}".rstrip()),
        console.table(rows, right=(0, 1, 2)),
        f"{counted(count, 'layer')}, {size_mb:,.1f} MB; {counted(empty, 'step')} without a layer",
    ]
    if steps and known == {None}:
        lines.append("the history does not match the layers: the step of each layer is unknown")
    return "\n".join(lines)


def _date(created: str) -> str:
    """The day of a step; nothing for the time stamps of builds that are the same at any time."""
    day = created[:10]
    return "" if day in _NO_DAYS else day


def _size(image: Image, number: int) -> tuple[str, str, str]:
    from bareboat_base.units import megabytes

    layer = image.layers[number]
    return str(number + 1), megabytes(layer.size_bytes), f"{layer.inodes:,}"
