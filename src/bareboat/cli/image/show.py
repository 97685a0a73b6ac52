"""bareboat image show: show what an image contains, its steps, or its software for other tools."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image import history, sbom
from bareboat.cli.image.common import add_image, find, signed_by
from bareboat_base import digests
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.inside.survey import Inside
    from bareboat_images.model import Pin

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
        return history.run(context)
    if context.options.sbom is not None:
        return sbom.run(context)
    if context.options.output is not None:
        words = ["bareboat", "image", "show", context.options.image, "--sbom", "spdx"]
        remedy = shlex.join([*words, "-o", context.options.output])
        raise UsageError("--output is the file of --sbom, which is not given", remedy=remedy)
    from bareboat_images.inside import survey

    store = context.store
    image, pin = _image_and_pin(context)
    trust = pin.trust if pin else None
    trees = store.trees(image)
    found = survey.look(trees, environment=image.environment)
    if context.options.json:
        console.result_json({"image": image, "inside": found, "trust": trust})
    else:
        console.result(_text(image, found, signed_by(trust) if image.reference else ""))
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


def _text(image: Image, found: Inside, signatures: str) -> str:
    process = image.process
    facts = [
        (
            "reference",
            image.reference or ("built from a Dockerfile" if image.built else "captured from an environment"),
        ),
        ("architecture", image.architecture or found.architecture),
        ("size", f"{image.size_bytes / 1e6:,.0f} MB, {image.inodes:,} files and directories"),
        ("distribution", found.distribution),
        ("C library", found.libc),
        ("Python", f"{found.python_version}, {found.python}" if found.python else None),
        ("frameworks", ", ".join(f"{name} {version}" for name, version in found.frameworks.items())),
        ("CUDA", found.cuda),
        ("cuDNN", found.cudnn),
        ("NCCL", found.nccl),
        ("ROCm", found.rocm),
        *(
            (
                "MPI",
                f"{mpi.title}, {mpi.library}; supports {', '.join(mpi.speaks) or 'none'}",
            )
            for mpi in found.mpis
        ),
        *(
            (
                "fabric",
                f"{fabric.name} {fabric.version or '?'}, {fabric.path}"
                + (f"; supports {', '.join(fabric.parts)}" if fabric.parts else ""),
            )
            for fabric in found.fabrics
        ),
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
    notes = [*image.notes, *found.notes]
    lines += [console.bold("notes"), *(f"  {note}" for note in notes)] if notes else []
    return "\n".join(lines)
