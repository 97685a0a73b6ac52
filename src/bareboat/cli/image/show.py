"""bareboat image show: show what an image contains, its steps, or its software for other tools."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_image, find, signed_by
from bareboat_base import digests
from bareboat_base.errors import UsageError
from bareboat_base.files import outputs
from bareboat_base.printable import counted, one_line

if TYPE_CHECKING:
    from bareboat.model import Image, Pin
    from bareboat_images.store import Store

EXAMPLE = "bareboat image show pytorch"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser)
    views = parser.add_mutually_exclusive_group()
    views.add_argument(
        "--history",
        action="store_true",
        help="the steps by which it was made, with the size of each layer; -v: whole steps",
    )
    views.add_argument(
        "--sbom",
        metavar="FORMAT",
        choices=("spdx",),
        help="its software in JSON, as SPDX 2.3: spdx",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write --sbom to this file")


def run(context: Context) -> int:
    if context.options.history:
        return _run_history(context)
    if context.options.sbom is not None:
        return _run_sbom(context)
    if context.options.output is not None:
        words = ["bareboat", "image", "show", context.options.image, "--sbom", "spdx"]
        remedy = shlex.join([*words, "-o", context.options.output])
        raise UsageError("--output is the file of --sbom, which is not given", remedy=remedy)
    from bareboat_images.inside.survey import look

    store = context.store
    image, pin = _image_and_pin(context)
    trees = store.trees(image)
    found = look(trees, environment=image.environment)
    if context.options.json:
        console.result_json({"image": image, "inside": found, "trust": pin.trust if pin else None})
    else:
        notes = (*image.notes, *found.notes)
        image = replace(image, architecture=image.architecture or found.architecture or "", notes=notes)
        console.result(_text(image, found.rows, signed_by(pin) if image.reference else ""))
    return 0


def _image_and_pin(context: Context) -> tuple[Image, Pin | None]:
    """The image, with the reference by which the user named it; and that reference's pin. A verdict on
    signatures is one about a reference: the same image may be signed under one and not under another."""
    text = context.options.image
    image = find(context, text)
    pin = None
    if not context.store.knows(text):
        from bareboat_images.transfer import locate

        pin = context.store.pinned(str(locate.read(text, folder=os.getcwd())))
        if pin is not None:
            image = replace(image, reference=pin.reference)
    if pin is None and image.reference:
        pin = context.store.pinned(image.reference)
    return image, pin if pin is not None and pin.digest == image.digest else None


def _text(image: Image, inside: Sequence[tuple[str, str | None]], signatures: str) -> str:
    process = image.process
    facts = [
        (
            "reference",
            image.reference or ("built from a Dockerfile" if image.built else "captured from an environment"),
        ),
        ("architecture", image.architecture),
        ("size", f"{image.size_bytes / 1e6:,.0f} MB, {image.inodes:,} files and directories"),
        *inside,
        ("entrypoint", shlex.join(process.entrypoint)),
        ("command", shlex.join(process.command)),
        ("folder", process.workdir),
        ("user", process.user),
        ("signatures", signatures),
    ]
    lines = [console.bold(image.digest)]
    lines += [f"  {name:<13} {value}" for name, value in facts if value]
    lines.append(console.bold("layers"))
    for layer in image.layers:
        lines.append(
            f"  {digests.short(layer.diff_id)}  {layer.size_bytes / 1e6:8,.1f} MB  {layer.inodes:8,} files  "
            f"{layer.comment[:60]}".rstrip()
        )
    if image.notes:
        lines += [console.bold("notes"), *(f"  {note}" for note in image.notes)]
    return "\n".join(lines)


def _run_sbom(context: Context) -> int:
    from bareboat_images import sbom

    options = context.options
    path = outputs.check_new(options.output, flag="--output")
    document, found = sbom.document(context.store, find(context, options.image))
    text = json.dumps(document, indent=2)
    if path is None:
        console.result(text)
    else:
        outputs.write_new(path, f"{text}\n".encode())
        console.result(f"{path}: {len(found.packages):,} packages")
    for warning in found.warnings:
        console.note(f"warning: {warning}")
    return 0


#: Of a step's text; -v shows all.
_LONGEST = 120
#: Of reproducible builds: the zero of archives, of Unix, and of Go.
_NO_DAYS = ("1980-01-01", "1970-01-01", "0001-01-01")


def _run_history(context: Context) -> int:
    store = context.store
    image = find(context, context.options.image)
    blobs = store.manifest(image).layers
    steps = _steps(store, image)
    if context.options.json:
        console.result_json(
            {
                "digest": image.digest,
                "steps": [step._asdict() for step in steps],
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
    console.result(_history_text(image, steps, full=context.options.verbose))
    return 0


class Step(NamedTuple):
    """One history entry. `created_by`: unchanged; `instruction`: as in a Dockerfile. `layer`: its
    number, from 1; None if it has none or the history does not match the layers."""

    created: str
    created_by: str
    instruction: str
    comment: str
    empty_layer: bool
    layer: int | None


def _steps(store: Store, image: Image) -> list[Step]:
    """The steps in the config. Raises StoreError, ImageError."""
    from bareboat_images.inside.configuration import as_instruction

    entries = store.read_config(image).history or []
    fits = sum(not entry.empty_layer for entry in entries) == len(image.layers)
    numbers = itertools.count(1)
    steps = []
    for entry in entries:
        by, is_empty = entry.created_by or "", bool(entry.empty_layer)
        number = None if is_empty else next(numbers)
        steps.append(
            Step(
                created=entry.created or "",
                created_by=by,
                instruction=as_instruction(by),
                comment=entry.comment or "",
                empty_layer=is_empty,
                layer=number if fits else None,
            )
        )
    return steps


def _history_text(image: Image, steps: Sequence[Step], *, full: bool) -> str:
    """The steps in the order of the build; layers without an entry in the history come first."""
    rows = [("layer", "size", "files", "date", "step")]
    known = {step.layer for step in steps}
    for number, layer in enumerate(image.layers, 1):
        if number not in known:
            rows.append((*_layer_size(image, number), "", one_line(layer.comment) or "not in the history"))
    for step in steps:
        size = ("", "", "") if step.layer is None else _layer_size(image, step.layer)
        text = " ".join(step.instruction.split()) or one_line(step.comment) or "not recorded"
        day = "" if step.created[:10] in _NO_DAYS else step.created[:10]
        rows.append((*size, day, text if full else one_line(text, limit=_LONGEST)))
    empty = sum(step.empty_layer for step in steps)
    count, size_mb = len(image.layers), image.size_bytes / 1e6
    lines = [
        console.bold(f"{digests.short(image.digest)}  {image.reference}".rstrip()),
        console.table(rows, right=(0, 1, 2)),
        f"{counted(count, 'layer')}, {size_mb:,.1f} MB; {counted(empty, 'step')} without a layer",
    ]
    if steps and known == {None}:
        lines.append("the history does not match the layers: the step of each layer is unknown")
    return "\n".join(lines)


def _layer_size(image: Image, number: int) -> tuple[str, str, str]:
    layer = image.layers[number - 1]
    return str(number), f"{layer.size_bytes / 1e6:,.1f} MB", f"{layer.inodes:,}"
