"""The disk space of a store (`image du`): by purpose, and by image."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from bareboat_base import digests
from bareboat_base.errors import StoreError
from bareboat_images.model import Image
from bareboat_images.store import Store
from bareboat_images.upkeep import contents

#: The directories of small files: manifests and configs, metadata, names.
_DOCUMENTS = ("blobs", "images", "captures", "names", "pins", "leases")


class Amount(Struct, frozen=True, kw_only=True):
    """Space on the store's file system."""

    size_bytes: int = 0
    inodes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(size_bytes=self.size_bytes + other.size_bytes, inodes=self.inodes + other.inodes)

    @classmethod
    def below(cls, place: Path, *, linked: bool = True, unreadable: list[str] | None = None) -> Amount:
        """The space below a directory, each file once; without `linked`, files with several names are not
        counted. Directories that cannot be read are added to `unreadable`."""
        size_bytes = inodes = 0
        seen: set[tuple[int, int]] = set()
        for state in contents.states(place, [] if unreadable is None else unreadable):
            if stat.S_ISREG(state.st_mode):
                if state.st_nlink > 1:
                    if not linked or (state.st_dev, state.st_ino) in seen:
                        continue
                    seen.add((state.st_dev, state.st_ino))
                size_bytes += min(state.st_size, state.st_blocks * 512)  # a sparse file counts by its blocks
            elif not linked and state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode):
                continue
            inodes += 1
        return cls(size_bytes=size_bytes, inodes=inodes)


class ImageUsage(Struct, frozen=True, kw_only=True):
    """The disk space of one image. `own`: would be free without it; `shared`: in layers that other images
    also have.

    `names`: its names and pinned references.
    """

    digest: str
    names: tuple[str, ...]
    own: Amount
    shared: Amount


class Usage(Struct, frozen=True, kw_only=True):
    """The disk space of the store, by purpose. `unused`: in layers of no image; see `collect_garbage`.

    `flat`: the space that flat trees add to the layers whose files they link; `containers`: those of shims,
    which keep changes; `total` counts nothing twice.
    `unreadable`: directories whose content is not counted.
    """

    images: tuple[ImageUsage, ...]
    layers: Amount
    unused: Amount
    flat: Amount
    packed: Amount
    documents: Amount
    parts: Amount
    runs: Amount
    containers: Amount
    in_progress: Amount
    total: Amount
    unreadable: tuple[str, ...]


def usage(store: Store) -> Usage:
    """Measure the store, and what each image needs. Layers are not walked: their metadata has the sizes.

    Raises StoreError where the lists of images and layers cannot be read; other directories that cannot be
    read are in `unreadable`.
    """
    lost: list[str] = []
    with store.guarded():
        images = store.images([])
        named = contents.named(store.root / "layers")
        amounts = {diff_id: layer_amount(store, diff_id, lost) for diff_id in named}
        users: dict[str, set[str]] = {}
        for image in images:
            for layer in image.layers:
                users.setdefault(layer.diff_id, set()).add(image.digest)
        names = contents.names(store)
        per_image = []
        for image in images:
            known = amounts.keys() & {layer.diff_id for layer in image.layers}
            own = total(amounts[each] for each in known if len(users[each]) == 1)
            shared = total(amounts[each] for each in known if len(users[each]) > 1)
            called = tuple(sorted(names.get(image.digest, ())))
            per_image.append(ImageUsage(digest=image.digest, names=called, own=own, shared=shared))
        layers = total(amounts.values())
        trees = ("flat", "roots", "relinked")
        made = [top / name for top in store.made_in for name in trees]
        flat = total(Amount.below(each, linked=False, unreadable=lost) for each in made)
        packed = total(Amount.below(top / "packed", unreadable=lost) for top in store.made_in)
        documents = total(Amount.below(store.root / name, unreadable=lost) for name in _DOCUMENTS)
        parts = Amount.below(store.root / "parts", unreadable=lost)
        runs = Amount.below(store.root / "runs", unreadable=lost)
        containers = Amount.below(store.instances(), unreadable=lost)
        in_progress = Amount.below(store.root / "tmp")  # of a group's store: private to other members
    return Usage(
        images=tuple(per_image),
        layers=layers,
        unused=total(amount for diff_id, amount in amounts.items() if diff_id not in users),
        flat=flat,
        packed=packed,
        documents=documents,
        parts=parts,
        runs=runs,
        containers=containers,
        in_progress=in_progress,
        total=total((layers, flat, packed, documents, parts, runs, containers, in_progress)),
        unreadable=tuple(sorted(lost)),
    )


def shared_layers(store: Store, image: Image) -> tuple[Amount, tuple[str, ...]]:
    """The space that would remain after an image's removal, in layers that other images also have, and the
    names of those images."""
    images = store.images([])
    own = {layer.diff_id for layer in image.layers}
    users = [each for each in images if own & {layer.diff_id for layer in each.layers}]
    shared = own & {layer.diff_id for each in users for layer in each.layers}
    names = contents.names(store)
    called = [min(names.get(each.digest, {digests.short(each.digest)})) for each in users]
    return total(layer_amount(store, diff_id) for diff_id in shared), tuple(sorted(called))


def layer_amount(store: Store, diff_id: str, unreadable: list[str] | None = None) -> Amount:
    """The space of a layer by its metadata; a damaged layer is walked. Directories that cannot be read are
    added to `unreadable`."""
    folder = store.layer_folder(diff_id)
    try:
        facts = store.stored_layer(diff_id)
        beside = [entry.stat(follow_symlinks=False) for entry in os.scandir(folder) if entry.name != "tree"]
    except (StoreError, OSError):
        return Amount.below(folder, unreadable=unreadable)
    return Amount(
        size_bytes=facts.unpacked_bytes + sum(state.st_size for state in beside),
        inodes=facts.inodes + 2 + len(beside),  # including the layer's directory, and its tree's
    )


def file_amount(path: Path) -> Amount:
    try:
        state = path.lstat()
    except OSError:
        return Amount()
    return Amount(size_bytes=0 if stat.S_ISDIR(state.st_mode) else state.st_size, inodes=1)


def total(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, start=Amount())
