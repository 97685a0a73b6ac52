"""What the actions on images share: how registries are reached, and how an image is named."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from bareboat import digests
from bareboat.cli.command_line import number
from bareboat.cli.common import Context, registry_access
from bareboat.errors import BareboatError, StoreError

if TYPE_CHECKING:
    from bareboat.images.layers.limits import Limits
    from bareboat.images.oci.blobs import Blobs
    from bareboat.images.transfer.locate import Access
    from bareboat.images.upkeep import Amount
    from bareboat.model import Image


def add_access(parser: argparse.ArgumentParser) -> None:
    """The flags for reaching a registry."""
    parser.add_argument(
        "--plain-http",
        dest="without_tls",
        action="store_true",
        help="speak to the registry without TLS: nothing proves then who answers",
    )
    parser.add_argument("--ca-file", metavar="FILE", help="a certificate authority to trust, in PEM")
    parser.add_argument(
        "--mirrors", metavar="REGISTRY=HOST[,…]", help="places to ask before the registry itself"
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The flags that allow more than an ordinary image needs."""
    parser.add_argument(
        "--max-unpacked", metavar="BYTES", type=number("--max-unpacked"), help="a layer may unpack to so much"
    )
    parser.add_argument(
        "--max-entries", metavar="N", type=number("--max-entries"), help="a layer may hold so many files"
    )
    parser.add_argument(
        "--max-ratio", metavar="X", type=number("--max-ratio"), help="a layer may inflate by this factor"
    )


def add_image(parser: argparse.ArgumentParser, *, many: bool = False) -> None:
    parser.add_argument(
        "image",
        metavar="IMAGE",
        nargs="+" if many else None,
        help="its name, its digest or the beginning of it, or the reference it was pulled by",
    )


def access(context: Context, registry: str) -> Access:
    """How registries are reached: flags over settings. `registry` is the one that --plain-http is about."""
    import dataclasses

    found = registry_access(context)
    if context.options.without_tls:
        found = dataclasses.replace(found, plain_http=found.plain_http | {registry})
    return found


def blobs(context: Context, image: Image) -> Blobs:
    """Where the image's compressed layers are: kept in the store, or where the image was pulled from."""
    from bareboat.images.oci.blobs import Blobs, no_source
    from bareboat.images.oci.reference import parse
    from bareboat.images.oci.source import Source
    from bareboat.images.transfer import locate

    registry_access(context)  # a mistake in the flags is an error, whether or not a registry is asked
    if context.options.no_fetch or not image.reference:
        return Blobs(context.store, no_source)

    def source() -> Source | None:
        try:
            origin = parse(image.reference, folder="/")
            return locate.open_source(origin, access(context, origin.registry))
        except BareboatError:
            return None

    return Blobs(context.store, source)


def add_digest(parser: argparse.ArgumentParser) -> None:
    """The flags of what writes an image with its digest."""
    parser.add_argument(
        "--rewrite",
        action="store_true",
        help="write uncompressed layers under a new manifest: another digest, for other tools",
    )
    parser.add_argument(
        "--no-fetch",
        dest="no_fetch",
        action="store_true",
        help="do not fetch compressed layers again from where the image came from",
    )
    add_access(parser)


def limits(context: Context) -> Limits:
    import dataclasses

    from bareboat.images.layers.limits import Limits

    options = context.options
    asked = {
        "max_unpacked_bytes": options.max_unpacked,
        "max_entries": options.max_entries,
        "max_ratio": options.max_ratio,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return dataclasses.replace(Limits(), **given)


def find(context: Context, text: str) -> Image:
    """The image of the store that the text names. Raises StoreError when there is none."""
    from bareboat.images.transfer import locate

    image = locate.in_store(text, context.store, folder=os.getcwd())
    if image is None and text == "capture":  # no registry is asked for it
        raise StoreError(
            "capture is the environment that is active when a job is submitted, and no image of the store",
            remedy="bareboat capture --name NAME   # an image of it, as it stands",
        )
    if image is None:
        raise StoreError(
            f"there is no image {text!r} in the store {context.store.root}",
            remedy=f"bareboat image pull {text}   # or: bareboat image ls",
        )
    return image


def title(image: Image) -> str:
    """An image in a few words."""
    return f"{digests.short(image.digest)}  {image.reference or 'captured'}"


def size(amount: Amount) -> str:
    """Space and inodes, for people."""
    return f"{amount.size_bytes / 1e6:,.1f} MB, {amount.inodes:,} files"
