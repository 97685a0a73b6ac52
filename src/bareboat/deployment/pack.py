"""An image as one file, a SIF or a squashfs, for file systems on which inodes are scarce.

A job cannot make mount points in such a file, so the usual ones are made when it is packed. Other jobs would
see mount points that only one job needs, so jobs with such mounts use a separate file, a complete copy of the
image. Equal mount points of an image give equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bareboat.deployment.points import is_directory
from bareboat.engines import HOST_FILES
from bareboat_base import digests
from bareboat_base.errors import PlanError, StoreError
from bareboat_base.files import ownership
from bareboat_base.files.trees import remove_tree
from bareboat_base.host_files import Mount
from bareboat_base.sif import write_sif
from bareboat_images import lease
from bareboat_images.formats import packed
from bareboat_images.formats.flatten import copy, flatten
from bareboat_images.formats.squash import make_squashfs
from bareboat_images.layers import layer
from bareboat_images.layers.places import make_mount_points
from bareboat_images.model import Image
from bareboat_images.place import Room
from bareboat_images.progress import Progress
from bareboat_images.store import Store

_FOLDERS = ("/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/run", "/home")
_FILES = (*HOST_FILES, "/etc/passwd", "/etc/group")
#: Directories next to the file: the image's mount point, and a directory for read-only mounts.
_MOUNTED_ON = ("mounted", "stage")


def provide(
    store: Store,
    image: Image,
    kind: str,
    mount_points: Sequence[Mount] = (),
    own_points: Sequence[Mount] = (),
    *,
    progress: Progress = lambda *_: None,
) -> Path:
    """The image as a file of this kind with these mount points, packed now if it does not exist. If the image
    lacks one of `own_points`, which other jobs do not have, the file is only for jobs with the same ones.

    Raises PlanError for an impossible mount point, ImageError if mksquashfs is not installed, StoreError
    without enough space.
    """
    wanted = {mount.target: is_directory(mount.source) for mount in mount_points}
    key = _key(store, image, own_points)
    if key:
        wanted |= {mount.target: is_directory(mount.source) for mount in own_points}
    path = store.packed(image.digest, kind, key)

    def serves() -> bool:
        found = packed.about(path)
        return found is not None and wanted.items() <= found.places.items()

    if not serves():
        with store.guarded():
            name = f"packed-{digests.hexed(image.digest)}-{key}{kind}"
            with lease.hold(
                store.lease(name), until=serves, waiting=lambda who: progress(f"waiting for {who}", 0, 0)
            ) as mine:
                if mine:
                    known = packed.about(path)
                    _pack(store, image, path, {**(known.places if known else {}), **wanted}, progress)
    if key:
        os.utime(path.parent)  # for `image rm --unused`, which removes unused files
    return path


def is_there(store: Store, image: Image, kind: str, own_points: Sequence[Mount] = ()) -> bool:
    """Whether the file of this kind was packed before."""
    return packed.about(store.packed(image.digest, kind, _key(store, image, own_points))) is not None


def _key(store: Store, image: Image, own_points: Sequence[Mount]) -> str:
    """The key of the file for jobs with these mount points; "" if the image has all of them."""
    own = {mount.target: is_directory(mount.source) for mount in own_points}
    if _has_all(store, image, own):
        return ""
    return hashlib.sha256(json.dumps(sorted(own.items())).encode()).hexdigest()[:16]


def _has_all(store: Store, image: Image, places: Mapping[str, bool]) -> bool:
    """Whether the image has these paths, of the right kind and without links in them."""
    if not places:
        return True
    view = store.view(image)
    found = {target: view.find(target) for target in places}
    return all(
        (there := found[target]) is not None
        and there.path == target
        and (there.node.kind == "folder") == is_folder
        for target, is_folder in places.items()
    )


def _pack(store: Store, image: Image, path: Path, asked: Mapping[str, bool], progress: Progress) -> None:
    kind = path.suffix.removeprefix(".")
    progress("making the tree that is packed", 0, 0)
    with store.scratch(own=store.is_own(path)) as scratch, _tree(store, image, scratch) as tree:
        places = _make_places(tree, asked)
        made = scratch / "image.squashfs"
        make_squashfs(tree, made, progress=progress)
        if kind == "sif":
            progress("writing the SIF", 0, 0)
            write_sif(made, scratch / "image.sif", os.uname().machine)
            made = scratch / "image.sif"
        for name in _MOUNTED_ON:
            (path.parent / name).mkdir(parents=True, exist_ok=True)
        packed.publish(made, path, places=places)


@contextlib.contextmanager
def _tree(store: Store, image: Image, scratch: Path) -> Iterator[Path]:
    """The image as a tree of hard links; if the store has too few inodes, as a copy in another directory for
    temporary files."""
    layers = store.trees(image)
    free_inodes = Room.at(str(store.root)).free_inodes
    if free_inodes is None or free_inodes <= 0 or free_inodes > image.inodes:
        flatten(layers, scratch / "tree")
        yield scratch / "tree"
        return
    folder = Path(tempfile.mkdtemp(prefix="bareboat-pack-", dir=ownership.temporary_directory()))
    try:
        copy(layers, folder / "tree")
        yield folder / "tree"
    except OSError as error:
        raise StoreError(
            f"the image cannot be packed: {error}",
            context=f"the store lacks inodes for it, and so it was tried in {folder.parent}",
            remedy="use a directory with more space: TMPDIR=DIR",
        ) from error
    finally:
        remove_tree(folder)


def _make_places(tree: Path, asked: Mapping[str, bool]) -> dict[str, bool]:
    """Make the usual and the requested mount points, with a fixed time. Returns path -> is a directory."""
    usual = {**dict.fromkeys(_FOLDERS, True), **dict.fromkeys(_FILES, False)}
    new: list[Path] = []
    places = {}
    for target, is_folder in sorted({**usual, **asked}.items()):
        mount = Mount(source="/" if is_folder else "/dev/null", target=target)
        missing = _missing(tree, target)
        try:
            make_mount_points(tree, [mount])
        except PlanError:
            if target in asked:
                raise
            continue  # an unusual image, which some engine may still run
        new += missing
        places[target] = is_folder
    for path in new:
        with contextlib.suppress(OSError):
            os.utime(path, (layer.EPOCH, layer.EPOCH), follow_symlinks=False)
    return places


def _missing(tree: Path, target: str) -> list[Path]:
    """The part of a path that does not exist in the tree, last name first."""
    path = tree / target.lstrip("/")
    found = []
    while path != tree and not os.path.lexists(path):
        found.append(path)
        path = path.parent
    return found
