"""Shared by the image actions: registry access and image names."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from bareboat.cli.argument_parser import number
from bareboat.cli.common import Context
from bareboat.session import images
from bareboat_base import digests
from bareboat_base.errors import StoreError
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Image, Pin
    from bareboat_images.registry.access import Access
    from bareboat_images.transfer.options import PullOptions
    from bareboat_images.upkeep import Amount


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the flags for registry access."""
    parser.add_argument(
        "--plain-http",
        dest="without_tls",
        action="store_true",
        help="use plain HTTP for the registry; its identity is not verified",
    )
    parser.add_argument("--ca-file", metavar="FILE", help="certificate authority to trust, in PEM format")
    parser.add_argument("--mirrors", metavar="REGISTRY=HOST[,…]", help="mirrors to try before the registry")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the flags that raise the limits on images."""
    parser.add_argument(
        "--max-unpacked",
        metavar="BYTES",
        type=number("--max-unpacked"),
        help="maximum unpacked size of a layer",
    )
    parser.add_argument(
        "--max-entries", metavar="N", type=number("--max-entries"), help="maximum number of files in a layer"
    )
    parser.add_argument(
        "--max-ratio", metavar="X", type=number("--max-ratio"), help="maximum compression ratio of a layer"
    )


def add_image(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    parser.add_argument(
        "image",
        metavar="IMAGE",
        nargs=nargs,
        help="name, digest or its first digits, or the reference it was pulled by",
    )


def access(context: Context, registry: str) -> Access:
    """How to reach registries: flags override settings. `registry`: the one that --plain-http applies to; ""
    for all registries of a recipe."""
    from msgspec.structs import replace

    found = images.access(context.session)
    if context.options.without_tls:
        plain = {"plain_http": found.plain_http | {registry}} if registry else {"is_plain": True}
        found = replace(found, **plain)
    return found


def reach(context: Context) -> Callable[[str], Access] | None:
    """How to reach the registry that an image was pulled from; None where that is not wanted."""
    images.access(context.session)  # wrong flags are an error even if no registry is contacted
    return None if context.options.no_fetch else functools.partial(access, context)


def add_digest(parser: argparse.ArgumentParser) -> None:
    """Add the flags of actions that write an image with its digest."""
    parser.add_argument(
        "--rewrite",
        action="store_true",
        help="write uncompressed layers with a new manifest and digest, for other tools",
    )
    parser.add_argument(
        "--no-fetch",
        dest="no_fetch",
        action="store_true",
        help="do not download compressed layers from the image's registry",
    )
    add_access(parser)


def limited(context: Context, how: PullOptions) -> PullOptions:
    """The options with the limits of the flags."""
    from msgspec.structs import replace

    options = context.options
    asked = {
        "max_unpacked_bytes": options.max_unpacked,
        "max_entries": options.max_entries,
        "max_ratio": options.max_ratio,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return replace(how, limits=replace(how.limits, **given))


def find(context: Context, text: str) -> Image:
    """The image of the store with this name. Raises StoreError when there is none."""
    from bareboat_images.transfer import locate

    image = locate.in_store(text, context.store, folder=os.getcwd())
    if image is None and text == "capture":  # never looked up in a registry
        raise StoreError(
            "capture is the environment active at submission, not a stored image",
            remedy="bareboat image capture --name NAME   # stores it as an image",
        )
    if image is None:
        raise context.store.no_image(text)
    return image


def title(image: Image) -> str:
    """An image's short digest and reference."""
    return f"{digests.short(image.digest)}  {image.reference or ('built' if image.built else 'captured')}"


def size(amount: Amount) -> str:
    """Size and inodes for display."""
    return f"{amount.size_bytes / 1e6:,.1f} MB, {amount.inodes:,} files"


def signed_by(pin: Pin | None) -> str:
    """Describe who signed an image and which policy required it."""
    trust = pin.trust if pin is not None else None
    if trust is None:
        return "signatures not checked"
    by = f"; policy {trust.policy}, {trust.scope}" if trust.policy else ""
    match trust.state:
        case "signed" | "claimed":
            return one_line("; ".join(map(str, trust.signers)) + by, limit=500)
        case "unsigned":
            return one_line("unsigned" + by)
        case _:
            required = "the policy requires none" if trust.policy else "no policy"
            return one_line(f"signatures not checked: {required}{by}")
