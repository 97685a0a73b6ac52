"""The root file system of a job that mounts where the image has nothing: a tree of its own, with the places.

All jobs of an image share its flat tree. Places that one job needs would stay in it: the others would find an
empty file there, or could not mount a directory. So the job gets another tree. For an engine that joins
trees it holds the directories that lead to its mounts, and large ones are mounted from the flat tree; for the
others it is all of the image once more, of hard links. Equal mounts use the same tree.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bareboat import registry
from bareboat.images.layers.copies import FOLDER, copy_entry
from bareboat.images.layers.flatten import NO_LINK, copy_metadata, flatten, make_flat
from bareboat.images.layers.places import make_mount_points, resolve
from bareboat.model import Image, JoinedTree, Mount, Plan, Rootfs
from bareboat.store import Store

#: A directory with fewer entries below it is linked; a mount of a larger one costs less than that.
_SMALL = 200


def settle(
    store: Store, image: Image, rootfs: Rootfs, made: Plan, plan_again: Callable[[Rootfs], Plan]
) -> Plan:
    """Make the tree that the plan needs. Returns the plan; planned again where the job has a tree of its own.

    Raises PlanError for a mount that can have no place.
    """
    if made.delivery is not msgspec.UNSET:  # nodes have trees of their own
        make_flat(store, image, made.mount_points, relinked=made.relinked)
        return made
    shared = tuple(mount for mount in made.mount_points if mount not in made.own_points)
    flat = make_flat(store, image, shared, relinked=made.relinked)
    if all(_has_place(flat, mount) for mount in made.own_points):
        return made
    joined = bool(getattr(registry.engine(made.engine), "JOINS", False))
    tree = _provide(store, image, flat, made.mount_points, joined=joined)
    if joined:
        return plan_again(msgspec.structs.replace(rootfs, joined=tree))
    return plan_again(msgspec.structs.replace(rootfs, flat=tree.path, relinked=tree.path))


def _has_place(tree: Path, mount: Mount) -> bool:
    place = resolve(tree, mount)
    if place.is_symlink() or not place.exists():
        return False
    make_mount_points(tree, [mount])  # makes nothing; raises PlanError where it is of the other kind
    return True


def _provide(store: Store, image: Image, flat: Path, points: Sequence[Mount], *, joined: bool) -> JoinedTree:
    places = sorted((mount.target, os.path.isdir(mount.source)) for mount in points)
    key = hashlib.sha256(json.dumps([flat.parts[-3:], joined, places]).encode()).hexdigest()[:16]
    final = store.roots(image.digest) / key
    if not final.is_dir():
        with store.scratch() as scratch:
            tree = scratch / "made/tree"
            tree.mkdir(parents=True)
            bound: list[str] = []
            if joined:
                inside = {os.path.relpath(resolve(flat, mount), flat) for mount in points}
                _join(flat, tree, "", inside, bound)
            else:
                flatten([flat], tree)
            make_mount_points(tree, points)
            (scratch / "made/bound").write_bytes(b"".join(os.fsencode(each) + b"\0" for each in bound))
            store.publish(scratch / "made", final)
    found = (final / "bound").read_bytes().split(b"\0")[:-1]
    return JoinedTree(path=str(final / "tree"), bound=tuple(sorted(map(os.fsdecode, found))))


def _join(flat: Path, tree: Path, folder: str, places: set[str], bound: list[str]) -> None:
    """Fill one directory of the tree; `bound` gets those that are to be mounted."""
    source, target = os.open(flat / folder, FOLDER), os.open(tree / folder, FOLDER)
    try:
        with os.scandir(source) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                if not entry.is_dir(follow_symlinks=False):
                    _link(source, target, entry.name)
                elif any(place.startswith(f"{path}/") for place in places):
                    os.mkdir(entry.name, 0o700, dir_fd=target)
                    _join(flat, tree, path, places, bound)
                elif path not in places and _is_small(str(flat / path)):
                    flatten([flat / path], tree / path)
                else:
                    os.mkdir(entry.name, 0o755, dir_fd=target)
                    bound += [] if path in places else [path]
        copy_metadata(source, target)
    finally:
        os.close(source)
        os.close(target)


def _link(source: int, target: int, name: str) -> None:
    try:
        os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        copy_entry(source, os.fsencode(name), target, os.fsencode(name))


def _is_small(folder: str) -> bool:
    count = 0
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                count += 1
                if count > _SMALL:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return True
