"""A separate root file system for a job with mounts on paths that the image lacks, with the mount points.

All jobs of an image share its flat tree or its packed file. Mount points of one job would remain there: other
jobs would find an empty file, or could not mount a directory. So the job has its own tree. For an engine that
joins trees, it has the parent directories of the mounts, and large directories are mounted from the flat
tree. For other engines, it is the whole image in hard links. Equal mounts use the same tree.

Nodes with a copy of the image make the tree from a list next to it (runtime/image.sh).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bareboat import registry
from bareboat.deployment.points import is_directory, layer_of_job
from bareboat.model import Image, Mount, OwnTree, Plan, Rootfs
from bareboat_images.formats.flatten import flatten, join, make_flat
from bareboat_images.layers.places import check_stacked, make_mount_points, resolve
from bareboat_images.layers.view import View
from bareboat_images.progress import Progress
from bareboat_images.store import Store

#: The list from which the tree is made: entries followed by NUL, each a letter and a path. `a/`: the whole
#: image; `n`: a new directory; `l`: an entry linked into it; `b`: a directory that is mounted from the flat
#: tree; then `d` and `f`: directories and files that are mount points.
_HOW = "how"


def settle(
    store: Store,
    image: Image,
    rootfs: Rootfs,
    made: Plan,
    plan_again: Callable[[Rootfs], Plan],
    *,
    progress: Progress = lambda *_: None,
) -> Plan:
    """Make the tree, archive or file from which the plan runs the image. Returns the plan, made again for a
    job with its own tree or file.

    Raises PlanError for an impossible mount point, StoreError without enough space.
    """
    shared = tuple(mount for mount in made.mount_points if mount not in made.own_points)
    if made.packs is not None:
        from bareboat.deployment import pack

        file = str(pack.provide(store, image, made.packs, shared, made.own_points, progress=progress))
        if file == rootfs.packed[made.packs]:
            return made
        return plan_again(msgspec.structs.replace(rootfs, packed={**rootfs.packed, made.packs: file}))
    if not made.needs_flat:
        view = View([Path(layer) for layer in rootfs.layers.values()])
        check_stacked(view, made.mount_points)
        added = layer_of_job(store, view, made.mount_points)
        return made if added is None else plan_again(msgspec.structs.replace(rootfs, points=added))
    if not store.flat(image.digest).is_dir():
        progress("unpacking the image", 0, 0)
    flat = make_flat(store, image, shared, relinked=made.relinked)
    if made.delivery is not msgspec.UNSET:
        from bareboat.deployment import flat_tar

        flat_tar.provide(store, image, shared, relinked=made.relinked, progress=progress)
    if all(_has_place(flat, mount) for mount in made.mount_points):
        return made
    own = _provide(store, image, flat, made.mount_points, joined=_is_joined(made))
    return plan_again(msgspec.structs.replace(rootfs, own=own))


def missing(store: Store, image: Image, made: Plan) -> tuple[str, ...]:
    """Describe what `settle` would make for the plan. Makes nothing."""
    size = f"{sum(each.unpacked_bytes for each in image.layers) / 1e6:,.0f} MB"
    if made.packs is not None:
        from bareboat.deployment import pack

        if pack.is_there(store, image, made.packs, made.own_points):
            return ()
        return (f"pack the image as one file (.{made.packs}) of at most {size}",)
    if not made.needs_flat:
        return ()
    found = []
    flat = store.relinked(image.digest) if made.relinked else store.flat(image.digest)
    if not flat.is_dir():
        found.append(f"link the image's layers into one tree of {image.inodes:,} files and directories")
    elif not (
        all(_has_place(flat, mount) for mount in made.own_points)
        or _own_folder(store, image, flat, made.mount_points, joined=_is_joined(made)).is_dir()
    ):
        found.append("link a tree with this job's mount points")
    if made.delivery is not msgspec.UNSET:
        from bareboat_images.formats import packed

        kind = "relinked.tar" if made.relinked else "tar"
        if packed.about(store.packed(image.digest, kind)) is None:
            found.append(f"write the image as one archive of {size} for the nodes")
    return tuple(found)


def _is_joined(made: Plan) -> bool:
    return not made.inner_points and registry.engine(made.engine).JOINS


def _has_place(tree: Path, mount: Mount) -> bool:
    place = resolve(tree, mount)
    if place.is_symlink() or not place.exists():
        return False
    make_mount_points(tree, [mount])  # makes nothing; raises PlanError if the kinds differ
    return True


def _own_folder(store: Store, image: Image, flat: Path, points: Sequence[Mount], *, joined: bool) -> Path:
    import json  # few images lack a mount point

    places = sorted((mount.target, is_directory(mount.source)) for mount in points)
    key = hashlib.sha256(json.dumps([flat.parts[-3:], joined, places, 2]).encode()).hexdigest()[:16]
    return store.roots(image.digest) / key


def _provide(store: Store, image: Image, flat: Path, points: Sequence[Mount], *, joined: bool) -> OwnTree:
    final = _own_folder(store, image, flat, points, joined=joined)
    if not final.is_dir():
        with store.scratch(own=store.is_own(final)) as scratch:
            tree = scratch / "made/tree"
            tree.mkdir(parents=True)
            at = [(resolve(flat, mount), is_directory(mount.source)) for mount in points]
            how: list[str] = []
            if joined:
                join(flat, tree, {os.path.relpath(place, flat) for place, _ in at}, how)
            else:
                how.append("a/")
                flatten([flat], tree)
            make_mount_points(tree, points)
            how += [f"{'d' if is_folder else 'f'}/{os.path.relpath(place, flat)}" for place, is_folder in at]
            (scratch / "made" / _HOW).write_bytes(b"".join(os.fsencode(each) + b"\0" for each in how))
            store.publish(scratch / "made", final)
    os.utime(final)  # for `image rm --unused`, which removes unused trees
    if not joined:
        return OwnTree(path=str(final / "tree"))
    how_made = store.read_bytes(final / _HOW)
    listed = map(os.fsdecode, how_made.split(b"\0"))
    bound = sorted(each.removeprefix("b/") for each in listed if each.startswith("b/"))
    return OwnTree(path=str(final / "tree"), bound=tuple(bound))
