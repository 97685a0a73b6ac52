"""An image as one file, for file systems on which every inode counts: a SIF, or a squashfs.

Nothing can be made in such a file when a job starts, so what the engine mounts over must have its place
there: the usual places are made when it is packed, and those of the job that it is packed for. A job that
needs others has it packed again, with all that were known. Equal places of an image give equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bareboat import codec, place
from bareboat.engines import HOST_FILES
from bareboat.engines.packed import write_sif
from bareboat.errors import PlanError, StoreError
from bareboat.files.trees import remove_tree
from bareboat.images import lease
from bareboat.images.formats.squash import make_squashfs
from bareboat.images.layers import layer
from bareboat.images.layers.flatten import copy, flatten
from bareboat.images.layers.places import make_mount_points
from bareboat.images.progress import Progress
from bareboat.model import Image, Mount, PackedFile
from bareboat.store import Store

_FOLDERS = ("/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/run", "/home")
_FILES = (*HOST_FILES, "/etc/passwd", "/etc/group")
#: Beside the file: where an engine mounts it, and what is mounted for that.
_MOUNTED_ON = ("mounted", "stage")


def provide(
    store: Store,
    image: Image,
    kind: str,
    mount_points: Sequence[Mount] = (),
    *,
    progress: Progress = lambda *_: None,
) -> Path:
    """The image as a file of this kind with these places, packed now if there is none.

    Raises PlanError for a mount that can have no place, ImageError where there is no mksquashfs, StoreError
    where there is no room.
    """
    path = store.packed(image.digest, kind)
    wanted = {mount.target: os.path.isdir(mount.source) for mount in mount_points}

    def serves() -> bool:
        found = about(path)
        return found is not None and wanted.items() <= found.places.items()

    if serves():
        return path
    with store.guarded():
        name = f"packed-{path.parent.name}-{kind}"
        with lease.hold(
            store.lease(name), until=serves, waiting=lambda who: progress(f"waiting for {who}", 0, 0)
        ) as mine:
            if mine:
                known = about(path)
                _pack(store, image, path, {**(known.places if known else {}), **wanted}, progress)
    return path


def about(path: Path) -> PackedFile | None:
    """What is known of a packed file; None where there is none that is whole."""
    try:
        found = codec.from_json(facts_of(path).read_bytes(), PackedFile, what=str(path))
        return found if path.stat().st_size == found.size_bytes else None
    except (OSError, StoreError):
        return None


def facts_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _pack(store: Store, image: Image, path: Path, asked: Mapping[str, bool], progress: Progress) -> None:
    kind = path.suffix.removeprefix(".")
    progress("making the tree that is packed", 0, 0)
    with store.scratch() as scratch, _tree(store, image, scratch) as tree:
        places = _make_places(tree, asked)
        made = scratch / "image.squashfs"
        make_squashfs(tree, made, progress=progress)
        if kind == "sif":
            progress("writing the SIF", 0, 0)
            write_sif(made, scratch / "image.sif", os.uname().machine)
            made = scratch / "image.sif"
        facts = PackedFile(kind=kind, size_bytes=made.stat().st_size, sha256=sha256(made), places=places)
        (scratch / "facts").write_bytes(codec.to_json(facts))
        for name in _MOUNTED_ON:
            (path.parent / name).mkdir(parents=True, exist_ok=True)
        os.replace(made, path)
        os.replace(scratch / "facts", facts_of(path))


@contextlib.contextmanager
def _tree(store: Store, image: Image, scratch: Path) -> Iterator[Path]:
    """The image as a tree to pack, of hard links; of copies elsewhere where the store lacks inodes even for
    its folders."""
    layers = [store.layer(each.diff_id) for each in image.layers]
    free_inodes = place.room(str(store.root)).free_inodes
    if free_inodes is None or free_inodes <= 0 or free_inodes > image.inodes:
        flatten(layers, scratch / "tree")
        yield scratch / "tree"
        return
    folder = Path(tempfile.mkdtemp(prefix="bareboat-pack-"))
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
    """Make the usual places and those asked for, with the time stamp of all that Bareboat makes."""
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
            continue  # an image of its own kind, which some engine may run all the same
        new += missing
        places[target] = is_folder
    for path in new:
        with contextlib.suppress(OSError):
            os.utime(path, (layer.EPOCH, layer.EPOCH), follow_symlinks=False)
    return places


def _missing(tree: Path, target: str) -> list[Path]:
    """What is not there yet of a path in the tree."""
    path = tree / target.lstrip("/")
    found = []
    while path != tree and not os.path.lexists(path):
        found.append(path)
        path = path.parent
    return found
