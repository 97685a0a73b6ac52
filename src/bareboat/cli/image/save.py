"""bareboat image save: save an image to one file for offline machines, or in another tool's format."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.image.common import add_digest, add_image, blobs, find
from bareboat.model import Image
from bareboat_base.errors import UsageError
from bareboat_base.files import outputs
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_images import pinning
from bareboat_images.oci.reference import DAEMONS

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.transfer.blobs import Blobs
    from bareboat_images.transfer.export import LayerForm, Saved

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
    from bareboat import bundles
    from bareboat_images.transfer.save import KINDS

    options, store = context.options, context.store
    kind, colon, place = options.file.partition(":")
    if colon and kind in KINDS:
        return _convert(context, kind, place)
    if colon and kind in DAEMONS:
        raise UsageError(
            f"{quoted(options.file)}: images are not written to the store of {DAEMONS[kind]}",
            remedy=f"write docker-archive:FILE, and then {DAEMONS[kind]} load -i FILE",
        )
    if colon and (near := nearest(kind, KINDS)):
        raise UsageError(
            f"{quoted(options.file)} has the unknown format {quoted(kind)}; did you mean {near}?",
            context=f"formats: {', '.join(KINDS)}",
            remedy=f"write {near}:{shlex.quote(place)}",
        )
    path = outputs.check(options.file)
    outputs.check_free(path)
    image = find(context, options.image)
    called = [pin for pin in store.pins() if pin.digest == image.digest and store.covers(pin)]
    if options.rewrite:  # the file's manifest has another digest
        called = [pin for pin in called if pinning.digest_in(pin.reference) is None]
    names = [name for name, digest in store.names().items() if digest == image.digest]
    with _layers(context, image) as (found, form):
        saved = bundles.save(
            image, called, store, path, name=names[0] if names else "image", form=form,
            progress=context.progress.bytes,
        )  # fmt: skip
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
        _show(path, image, saved, found.reason)
    return 0


@contextlib.contextmanager
def _layers(context: Context, image: Image) -> Iterator[tuple[Blobs, LayerForm]]:
    """The image's compressed blobs, and how its layers are written with them; progress ends with it."""
    from bareboat_images.transfer.export import LayerForm

    found = blobs(context, image)
    try:
        yield found, LayerForm(blobs=found, rewrite=context.options.rewrite)
    finally:
        found.close()
        context.progress.end()


def _show(path: Path, image: Image, saved: Saved, reason: str) -> None:
    """Show the file, and what other tools cannot read. `reason`: why a layer's compressed form is missing."""
    console.result(
        f"{path}: {path.stat().st_size / 1e6:,.0f} MB\n  {saved.digest}\n"
        f"  on the offline machine: bareboat image load {shlex.quote(path.name)}"
    )
    if saved.digest != image.digest:
        console.note(f"note: the files are the same, but the digest differs from {image.digest}")
    if saved.tars:
        again = ""
        if image.reference:
            again = f"bareboat image pull --keep-blobs {shlex.quote(image.reference)}, and save it again; or "
        console.note(
            f"note: {saved.tars} of {len(image.layers)} layers are saved uncompressed: "
            "their compressed form is neither in the store nor at the image's source"
            + (f": {reason}" if reason else "")
        )
        console.note(
            "note: `bareboat image load` keeps the digest; other tools cannot read this file\n"
            f"  for other tools: {again}save it with --rewrite, which changes the digest"
        )


def _convert(context: Context, kind: str, place: str) -> int:
    from bareboat_images.transfer import save

    options = context.options
    place = save.checked(kind, place)
    image = find(context, options.image)
    with _layers(context, image) as (_, form):
        digest = save.save(
            context.store, image, kind, place, name=_name(context, image), form=form,
            progress=context.progress.bytes,
        )  # fmt: skip
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
