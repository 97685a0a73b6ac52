"""bareboat image load: load a bundle or another tool's archive."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_policy
from bareboat.cli.image.common import add_limits, limited, signed_by
from bareboat.session import images
from bareboat_base import digests

EXAMPLE = "bareboat image load pytorch.tar"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("file", metavar="FILE", help="file from `bareboat image save` or `podman save`")
    parser.add_argument("--name", metavar="NAME[:TAG]", help="name of the image in the store")
    parser.add_argument(
        "--bind-tags",
        dest="bind_tags",
        action="store_true",
        help="let tags in the file, such as debian:12, refer to its image; only for files that you trust",
    )
    add_limits(parser)
    add_policy(parser)


def run(context: Context) -> int:
    from bareboat_base.clock import utc_now
    from bareboat_images.transfer import bundles, locate
    from bareboat_images.transfer.options import PullOptions

    options, store = context.options, context.store
    if options.name is not None:
        store.check_name(options.name, flag="--name")
    path = Path(options.file).absolute()
    found = locate.file(path)
    bundles.pins(path)  # refuse a damaged list before unpacking layers
    session = context.session
    how = limited(context, PullOptions(access=images.access(session)))
    loaded = images.load(session, found, how)
    image = loaded.image
    called = bundles.called(path, loaded, now=utc_now())
    bound = (*called.confirmed, *(called.claimed if options.bind_tags else ()))
    bundles.bind(bound, store, path)
    left = () if options.bind_tags else called.claimed
    if options.name:
        store.name_image(options.name, image.digest)
    if options.json:
        console.result_json({"image": image, "pins": bound, "not_bound": left, "false": called.false})
        return 0
    names = ", ".join([*(pin.reference for pin in bound), *([options.name] if options.name else [])])
    console.result(
        f"{console.bold(image.digest)}\n  {names or path.name}: {image.size_bytes / 1e6:,.0f} MB, "
        f"{image.inodes:,} files and directories"
    )
    if left:
        again = f"bareboat image load {shlex.quote(options.file)} --bind-tags"
        console.note(
            f"note: tags in the file were not bound: {', '.join(pin.reference for pin in left)}\n"
            f"  if you trust the file: {again}"
        )
    name = None if options.name else called.own
    if name is not None and (before := store.names().get(name)) != image.digest:
        console.note(
            f"note: the file names this image {name}{', as another image is named here' if before else ''}\n"
            f"  to use this name: bareboat image tag {digests.short(image.digest)} {name}"
        )
    for each in called.false:
        console.note(f"note: the file also lists {each}, which is not this image; ignored")

    if pinned := store.pinned(str(found)):
        console.note(signed_by(pinned))
    return 0
