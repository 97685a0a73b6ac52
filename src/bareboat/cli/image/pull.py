"""bareboat image pull: pull an image into the store."""

from __future__ import annotations

import argparse
import os

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_trust
from bareboat.cli.image.common import access, add_access, add_limits, limited, signed_by
from bareboat.session import images
from bareboat_base import architectures
from bareboat_base.errors import UsageError
from bareboat_base.printable import quoted

EXAMPLE = "bareboat image pull nvcr.io/nvidia/pytorch:24.05-py3 --name pytorch"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "reference",
        metavar="REFERENCE",
        help="debian:12, quay.io/org/name@sha256:…, oci:DIR, oci-archive:FILE, docker-archive:FILE, "
        "sif:FILE, squashfs:FILE, rootfs:DIR, or a path",
    )
    parser.add_argument("--name", metavar="NAME[:TAG]", help="name of the image in the store")
    parser.add_argument("--arch", metavar="MACHINE", help="machine architecture: aarch64, x86_64, …")
    parser.add_argument("--fresh", action="store_true", help="download and unpack all layers again")
    parser.add_argument(
        "--keep-blobs",
        dest="keep_blobs",
        action="store_true",
        help="also keep the compressed layers, so that save and push work offline and keep the digest",
    )
    add_access(parser)
    add_limits(parser)
    add_trust(parser)


def _machine(asked: str | None) -> str:
    """The architecture as uname(1) prints it. Raises UsageError."""
    found = architectures.find(asked or os.uname().machine)
    if asked is not None and found is None:
        raise UsageError(
            f"unknown architecture --arch {quoted(asked)}; use the output of `uname -m` on that machine",
            context=f"known: {', '.join(each.name for each in architectures.ALL)}",
            remedy="--arch aarch64",
        )
    return found.name if found is not None else os.uname().machine


def run(context: Context) -> int:
    from bareboat_images.transfer import locate
    from bareboat_images.transfer.options import PullOptions

    options, store = context.options, context.store
    if options.name is not None:
        store.check_name(options.name, flag="--name")
    machine = _machine(options.arch)
    found = locate.read(options.reference, folder=os.getcwd())
    reach = access(context, found.registry)
    how = PullOptions(access=reach, machine=machine, fresh=options.fresh, keep_blobs=options.keep_blobs)
    pulled = images.pull(context.session, found, limited(context, how))
    if options.name:
        store.name_image(options.name, pulled.image.digest)
    if options.json:
        console.result_json(pulled)
    else:
        image = pulled.image
        what = "up to date"
        if pulled.fetched:
            what = f"{pulled.fetched} of {len(image.layers)} layers downloaded"
        elif str(found) != image.reference:
            what = f"already in the store, as {image.reference}"
        console.result(
            f"{console.bold(image.digest)}\n  {found}: {what}; "
            f"{image.size_bytes / 1e6:,.0f} MB, {image.inodes:,} files and directories"
        )

        if pin := store.pinned(str(found)):
            console.note(signed_by(pin))
        for note in image.notes:
            console.note(f"note: {note}")
    return 0
