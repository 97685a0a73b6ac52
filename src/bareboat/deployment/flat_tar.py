"""The flat tree of an image as one tar, which compute nodes read sequentially and unpack.

Not compressed: on a node, gunzip (about 190 MB/s) costs more time than a cluster's file system needs for the
saved bytes, and zstd is not installed on every node. Modes, times and hard links are kept: Python compares
the time of a source with the time in its byte code. The mount points that every job needs are in a list next
to the tar, which is written once: they differ between users (the home directory).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from bareboat.model import Image, Mount
from bareboat_base.errors import StoreError
from bareboat_base.files import untrusted
from bareboat_images import lease
from bareboat_images.formats import packed
from bareboat_images.layers.places import resolve
from bareboat_images.progress import Progress
from bareboat_images.store import Store

_TOLD_BYTES = 32 << 20


def provide(
    store: Store,
    image: Image,
    mount_points: Sequence[Mount] = (),
    *,
    relinked: bool = False,
    progress: Progress = lambda *_: None,
) -> Path:
    """The archive of the image's flat tree, written now if it does not exist, and next to it the list of
    mount points, including those of these mounts. The flat tree must exist and have these mount points.

    Raises StoreError without enough space.
    """
    tree = store.relinked(image.digest) if relinked else store.flat(image.digest)
    path = store.packed(image.digest, "relinked.tar" if relinked else "tar")
    wanted = {_place(tree, mount) for mount in mount_points}

    def serves() -> bool:
        return packed.about(path) is not None and wanted <= set(read_places(path))

    if serves():
        return path
    with store.guarded():
        name = f"packed-{path.parent.name}-{path.name.removeprefix('image.')}"
        with lease.hold(
            store.lease(name), until=serves, waiting=lambda who: progress(f"waiting for {who}", 0, 0)
        ) as mine:
            if mine:
                # The list first: a complete archive must have a list.
                places = sorted(wanted | set(read_places(path)))
                store.write(places_of(path), b"".join(os.fsencode(place) + b"\0" for place in places))
                if packed.about(path) is None:
                    _write(store, image, tree, path, progress)
    return path


def places_of(path: Path) -> Path:
    """The list of mount points for bash: `d/FOLDER` and `f/FILE`, each followed by NUL."""
    return path.with_name(path.name + ".places")


def read_places(path: Path) -> list[str]:
    try:
        return [os.fsdecode(place) for place in untrusted.read_bytes(places_of(path)).split(b"\0") if place]
    except FileNotFoundError:
        return []


def _place(tree: Path, mount: Mount) -> str:
    """The entry of a mount point, with links of the image resolved."""
    place = resolve(tree, mount)
    return ("d" if place.is_dir() else "f") + str(place)[len(str(tree)) :]


def _write(store: Store, image: Image, tree: Path, path: Path, progress: Progress) -> None:
    size_bytes = sum(each.unpacked_bytes for each in image.layers)
    store.check_room(
        needed_bytes=size_bytes, needed_inodes=3, what="the image as one file for the compute nodes"
    )
    with store.scratch(own=store.is_own(path)) as scratch, open(scratch / "tar", "wb") as stream:
        hashed = hashlib.sha256()
        told = 0

        def write(data: bytes) -> None:
            nonlocal told
            stream.write(data)
            hashed.update(data)
            if stream.tell() - told >= _TOLD_BYTES:
                told = stream.tell()
                progress("writing the image as one file", min(told, size_bytes), size_bytes)

        progress("writing the image as one file", 0, size_bytes)
        try:
            packed.write_tree(os.fspath(tree), write)
        except EOFError:
            raise StoreError(
                f"a file of the image {image.digest} became shorter while it was read",
                remedy="bareboat image verify IMAGE",
            ) from None
        stream.flush()
        os.fsync(stream.fileno())
        packed.publish(scratch / "tar", path, digest=hashed.hexdigest(), places={})
