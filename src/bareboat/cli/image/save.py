"""bareboat image save: save an image to one file for offline machines, or in another tool's format."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_digest, add_image, find, reach
from bareboat.model import Image
from bareboat_base.files import outputs

EXAMPLE = "bareboat image save pytorch pytorch.tar\n  bareboat image save pytorch sif:pytorch.sif"

TARGETS = "sif:FILE, squashfs:FILE, oci-archive:FILE, docker-archive:FILE or rootfs:DIR"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_image(parser)
    parser.add_argument(
        "file",
        metavar="FILE | FORMAT:PATH",
        help="path of the bundle, which is also an OCI archive for other tools; or " + TARGETS,
    )
    add_digest(parser)


def run(context: Context) -> int:
    from bareboat_images.transfer import bundles, export, save

    options, store = context.options, context.store
    if (asked := save.target(options.file)) is not None:
        return _convert(context, *asked)
    path = outputs.check(options.file)
    outputs.check_free(path)
    image = find(context, options.image)
    called = bundles.pins_of(image, store, rewrite=options.rewrite)
    try:
        with export.layer_form(store, image, reach(context), rewrite=options.rewrite) as form:
            saved = bundles.save(
                image, called, store, path, name=_name(context, image), form=form,
                progress=context.progress.bytes,
            )  # fmt: skip
    finally:
        context.progress.end()
    if options.json:
        console.result_json(
            {
                "file": str(path),
                "bytes": path.stat().st_size,
                "image": image.digest,
                "digest": saved.digest,
                "tars": saved.tars,
                "pins": called,
            }
        )
    else:
        _show(path, image, saved.digest, saved.tars, form.reason)
    return 0


def _show(path: Path, image: Image, digest: str, tars: int, reason: str) -> None:
    """Show the file, and what other tools cannot read: `tars` layers. `reason`: why one is uncompressed."""
    console.result(
        f"{path}: {path.stat().st_size / 1e6:,.0f} MB\n  {digest}\n"
        f"  on the offline machine: bareboat image load {shlex.quote(path.name)}"
    )
    if digest != image.digest:
        console.note(f"note: the files are the same, but the digest differs from {image.digest}")
    if tars:
        again = ""
        if image.reference:
            again = f"bareboat image pull --keep-blobs {shlex.quote(image.reference)}, and save it again; or "
        console.note(
            f"note: {tars} of {len(image.layers)} layers are saved uncompressed: "
            "their compressed form is neither in the store nor at the image's source"
            + (f": {reason}" if reason else "")
        )
        console.note(
            "note: `bareboat image load` keeps the digest; other tools cannot read this file\n"
            f"  for other tools: {again}save it with --rewrite, which changes the digest"
        )


def _convert(context: Context, kind: str, place: str) -> int:
    from bareboat_images.transfer import export, save

    options, store = context.options, context.store
    place = save.checked(kind, place)
    image = find(context, options.image)
    try:
        with export.layer_form(store, image, reach(context), rewrite=options.rewrite) as form:
            digest = save.save(
                store, image, kind, place, name=_name(context, image), form=form,
                progress=context.progress.bytes,
            )  # fmt: skip
    finally:
        context.progress.end()
    if options.json:
        console.result_json({"target": f"{kind}:{place}", "image": image.digest, "digest": digest})
    else:
        grown = f": {os.path.getsize(place) / 1e6:,.0f} MB" if Path(place).is_file() else ""
        console.result(f"{place}{grown}" + (f"\n  {digest}" if kind == "oci-archive" else ""))
        if digest != image.digest:
            console.note(f"note: the files are the same, but the digest differs from {image.digest}")
    return 0


def _name(context: Context, image: Image) -> str:
    """What the image is called in the store, for the archive."""
    names = [name for name, digest in context.store.names().items() if digest == image.digest]
    asked = context.options.image
    known = asked if asked in names else next(iter(names), "image")
    return known if ":" in known else f"{known}:latest"
