"""bareboat image save IMAGE FORMAT:PATH: write an image in another tool's format."""

from __future__ import annotations

import os
from pathlib import Path

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.image.common import blobs, find
from bareboat.model import Image
from bareboat_base.files import outputs

FILES = ("sif", "squashfs", "oci-archive", "docker-archive", "rootfs")
STORAGES = ("docker-daemon", "containers-storage")
TARGETS = (
    "sif:FILE, squashfs:FILE, oci-archive:FILE, docker-archive:FILE, rootfs:DIR, docker-daemon:NAME or "
    "containers-storage:NAME"
)


def run(context: Context, kind: str, place: str) -> int:
    from bareboat_images.transfer import docker

    options = context.options
    if kind in STORAGES:
        return _load(context, kind, docker.check_name(place))
    path = outputs.check(place, is_folder=kind == "rootfs")
    image = find(context, options.image)
    if kind in (
        "oci-archive",
        "docker-archive",
        "rootfs",
    ):  # the size of the other formats is unknown in advance
        outputs.check_room(path, image.size_bytes)
    digest = _write(context, image, kind, path)
    if options.json:
        console.result_json({"target": f"{kind}:{path}", "image": image.digest, "digest": digest})
    else:
        grown = f": {os.path.getsize(path) / 1e6:,.0f} MB" if path.is_file() else ""
        console.result(f"{path}{grown}" + (f"\n  {digest}" if kind == "oci-archive" else ""))
        if digest != image.digest:
            console.note(f"note: the files are the same, but the digest differs from {image.digest}")
    return 0


def _write(context: Context, image: Image, kind: str, path: Path) -> str:
    """Write the image as a file or directory; return the digest of its manifest there."""
    from bareboat_images.formats import squash
    from bareboat_images.formats.flatten import copy, make_flat
    from bareboat_images.transfer import docker, export

    store = context.store
    progress = context.progress.bytes
    name = image.reference.rpartition("/")[2].partition(":")[0].partition("@")[0] or "image"
    digest = image.digest
    found = blobs(context, image)
    try:
        with store.guarded():
            match kind:
                case "oci-archive":
                    saved = export.save_archive(
                        store,
                        image,
                        path,
                        name=name,
                        form=export.LayerForm(blobs=found, rewrite=context.options.rewrite, whole=True),
                        progress=progress,
                    )
                    digest = saved.digest
                case "docker-archive":
                    docker.save(store, image, path, name=_name(context, image), progress=progress)
                case "sif":
                    with store.scratch() as scratch:
                        export.save_archive(
                            store,
                            image,
                            scratch / "image.tar",
                            name=name,
                            form=export.LayerForm(rewrite=True),
                            progress=progress,
                        )
                        squash.make_sif(scratch / "image.tar", path, progress=progress)
                case "squashfs":
                    context.progress.say("unpacking the image")
                    squash.make_squashfs(make_flat(store, image), path, progress=progress)
                case _:
                    context.progress.say("copying files")
                    with outputs.beside(path) as part:
                        copy(store.trees(image), part)
    finally:
        found.close()
        context.progress.end()
    return digest


def _load(context: Context, kind: str, name: str) -> int:
    """Into the storage of Docker or Podman."""
    from bareboat_images.transfer import docker

    image, store, progress = find(context, context.options.image), context.store, context.progress
    if kind == "containers-storage" and "/" not in name:
        name = f"localhost/{name}"  # Podman's own names; it would take others for those of Docker Hub
    try:
        with store.guarded(), store.scratch() as scratch:
            file = scratch / "image.tar"
            outputs.check_room(file, image.size_bytes)
            docker.save(store, image, file, name=name, progress=progress.bytes)
            progress.say(f"{docker.STORAGES[kind]} loads the image")
            docker.load(kind, file, show=lambda _data: None)
    finally:
        progress.end()
    if context.options.json:
        console.result_json({"target": f"{kind}:{name}", "image": image.digest, "digest": image.digest})
    else:
        console.result(f"{kind}:{name}")
    return 0


def _name(context: Context, image: Image) -> str:
    """What the image is called in the store, for the archive."""
    names = [name for name, digest in context.store.names().items() if digest == image.digest]
    asked = context.options.image
    known = asked if asked in names else next(iter(names), "image")
    return known if ":" in known else f"{known}:latest"
