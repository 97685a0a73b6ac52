"""Removal of unneeded contents (`image rm --unused`, `image rm`).

A tree is never removed under its name: it is first renamed into the store's tmp/, so a reader finds all of it
or nothing. Removal writes nothing, so that it works on a full disk.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct

from bareboat_base import digests
from bareboat_base.errors import StoreError, UsageError
from bareboat_base.files import ownership, untrusted
from bareboat_base.files.trees import remove_tree
from bareboat_images.model import Image
from bareboat_images.store import VERSION, Store, owner
from bareboat_images.store.instances import Instances
from bareboat_images.upkeep import contents
from bareboat_images.upkeep.space import Amount, file_amount, layer_amount, total, walked

#: Age from which an unfinished blob or pull is abandoned.
_PARTS_KEPT_DAYS = 7.0
#: Trees and files with the mount points of some jobs are kept this long after the last submission.
_OWN_KEPT_DAYS = 90.0
#: Results of builds are kept this long after the last build that used them.
_BUILDS_KEPT_DAYS = 30.0
#: Compiled GPU kernels are kept this long after the last job that used them.
_KERNELS_KEPT_DAYS = 30.0
#: Containers of shims without a name are kept this long after the last command in them.
_CONTAINERS_KEPT_DAYS = 30.0
#: An image's manifest and config are written moments before its entry.
_BLOBS_YOUNG_DAYS = 1 / 24

_serials = itertools.count(1)


class Freed(Struct, frozen=True, kw_only=True):
    """One item that was removed, or would be: `kind` is image, layer, flat tree, packed image, tree or file
    for mounts, blob, part, capture, kernel cache, container, lease, build step, cache mount, download or
    unfinished work."""

    kind: str
    name: str
    amount: Amount


class Collected(Struct, frozen=True, kw_only=True):
    """The items that a garbage collection removed (or would), and those kept because of a fault, with the
    reason."""

    freed: tuple[Freed, ...]
    kept: tuple[str, ...] = ()

    @property
    def amount(self) -> Amount:
        return total(freed.amount for freed in self.freed)


class Removed(Struct, frozen=True, kw_only=True):
    """The result of a removal. `references`: the removed names and pins; `image_gone`: none was left, so the
    image was removed with everything that only it needed."""

    digest: str
    references: tuple[str, ...]
    image_gone: bool
    #: The names and pins that keep the image.
    kept_by: tuple[str, ...] = ()
    freed: tuple[Freed, ...] = ()

    @property
    def amount(self) -> Amount:
        return total(freed.amount for freed in self.freed)


def collect_garbage(
    store: Store,
    *,
    dry_run: bool = False,
    older_than_days: float | None = None,
    build_cache: bool = False,
) -> Collected:
    """Remove what no image needs: layers, flat trees, packed files, manifests and configs, unfinished blobs.

    Images are removed only if they have neither name nor pin and are older than `older_than_days`; None keeps
    all. Layers claimed by a pull in progress stay. Of the build cache only entries that no build has used for
    `_BUILDS_KEPT_DAYS` are removed; with `build_cache`, all. Raises StoreError for a store that is not
    writable.
    """
    if not store.root.is_dir():
        return Collected(freed=())
    freed: list[Freed] = []
    kept: list[str] = []
    with store.guarded():
        if not dry_run:
            _prepare(store)
        now_ns = contents.now_ns(store)
        images, unreadable = contents.images(store)
        kept += [f"{path.name}: {error}" for path, error in unreadable]
        if older_than_days is not None:
            named = contents.names(store)
            for image in images:
                entry = store.entry(image.digest)
                if ownership.obstacle(entry) is not None:
                    continue
                if image.digest not in named and contents.age_days(entry, now_ns) > older_than_days:
                    freed.append(Freed(kind="image", name=image.digest, amount=file_amount(entry)))
                    if not dry_run:
                        entry.unlink(missing_ok=True)
        freed += _sweep_builds(store, now_ns, everything=build_cache, dry_run=dry_run)
        cached = {item.name for item in freed if item.kind == "build step"} if dry_run else set()
        gone = {item.name for item in freed}
        images = [image for image in images if image.digest not in gone]
        if unreadable:
            # It is unknown what a damaged entry needs, so nothing that it may need is removed.
            kept.append("layers and documents: an image's entry cannot be read")
        else:
            freed += _sweep_layers(store, images, dry_run=dry_run, uncached=cached)
            freed += _sweep_flat(store, images, dry_run=dry_run)
            blobs, damaged = _sweep_blobs(store, images, now_ns, dry_run=dry_run)
            freed += blobs
            kept += [f"documents: the manifest of {digests.short(each)} is damaged" for each in damaged]
            freed += _sweep_own(store, images, now_ns, dry_run=dry_run)
        freed += _sweep_captures(store, gone, dry_run=dry_run)
        freed += _sweep_kernel_caches(store, now_ns, dry_run=dry_run)
        freed += _sweep_containers(store, now_ns, dry_run=dry_run)
        freed += _sweep_old(store, now_ns, dry_run=dry_run)
    return Collected(freed=tuple(freed), kept=tuple(kept))


def remove(store: Store, reference: str, *, dry_run: bool = False) -> Removed:
    """Remove a name, a pinned reference, or an image by its digest or the beginning of one.

    For a name or a pin, only that is removed, and the image with it if it was the last; for a digest, the
    image
    with all its names and pins. Layers that other images need stay. With `dry_run` nothing is removed, and
    `freed` is empty. Raises StoreError if the reference does not exist.
    """
    with store.guarded():
        digest, references = meant(store, reference)
        entry = store.entry(digest)
        gone = {name for name, _ in references}
        left = contents.names(store).get(digest, set()) - gone
        _check_removable(store, digest, [path for _, path in references], image_too=not left)
        if dry_run:
            return Removed(
                digest=digest,
                references=tuple(name for name, _ in references),
                image_gone=not left,
                kept_by=tuple(sorted(left)),
            )
        _prepare(store)
        indexes = contents.indexes(store)
        for _, path in references:
            path.unlink(missing_ok=True)
        left = contents.names(store).get(digest, set())  # another may have been added meanwhile
        if left:
            return Removed(
                digest=digest,
                references=tuple(name for name, _ in references),
                image_gone=False,
                kept_by=tuple(sorted(left)),
            )
        freed = [Freed(kind="image", name=digest, amount=file_amount(entry))] if entry.exists() else []
        try:
            layers = {layer.diff_id for layer in store.read(entry, Image).layers}
        except StoreError:  # a damaged entry is removed, too; its layers are left to a garbage collection
            layers = set()
        documents = (contents.blobs(store, digest) or {digest}) | indexes
        entry.unlink(missing_ok=True)
        images, unreadable = contents.images(store)
        if not unreadable:
            freed += _sweep_layers(store, images, only=layers)
            freed += _sweep_flat(store, images, only=documents)
            freed += _sweep_blobs(store, images, contents.now_ns(store), only=documents)[0]
    return Removed(
        digest=digest,
        references=tuple(name for name, _ in references),
        image_gone=True,
        freed=tuple(freed),
    )


def _check_removable(store: Store, digest: str, references: list[Path], *, image_too: bool) -> None:
    """Raise StoreError, before any change, unless this user may remove everything affected: in a group's
    store anybody may use names, but an image belongs to the user who pulled it."""
    paths = list(references)
    if image_too:
        images, unreadable = contents.images(store)
        needed = {layer.diff_id for image in images if image.digest != digest for layer in image.layers}
        own = {layer.diff_id for image in images if image.digest == digest for layer in image.layers}
        config = contents.config_digest(store, digest)
        alone = [store.entry(digest), store.blob(digest)]
        alone += [] if config is None else [store.blob(config)]
        alone += [
            store.flat(digest),
            store.roots(digest),
            store.relinked(digest),
            store.packed(digest, "sif").parent,
        ]
        if not unreadable:
            alone += [store.layer_folder(diff_id) for diff_id in own - needed]
        paths += alone
    for path in paths:
        if (obstacle := ownership.obstacle(path)) is not None:
            raise StoreError(
                f"this user may not remove {digests.short(digest)} from the store {store.root}; "
                "nothing was removed",
                context=obstacle,
                remedy="ask its owner to remove it"
                + ("" if image_too else ", or remove a name of your own: bareboat image ls"),
            )


def meant(store: Store, reference: str) -> tuple[str, list[tuple[str, Path]]]:
    """The digest that a reference refers to, and the names and pins, with their files, to remove with it.
    Raises StoreError if the reference does not exist."""
    names = store.names()
    begun = digests.beginning_with(reference, contents.named(store.root / "images"))
    if reference in names and not begun:
        return names[reference], [(reference, store.root / "names" / reference)]
    pins = {pin.reference: (pin.digest, store.pin_file(pin.reference)) for pin in store.pins()}
    for written in (reference, _in_full(reference)):
        if written in pins:
            digest, path = pins[written]
            return digest, [(written, path)]
    if begun and reference in names:
        path = store.root / "names" / reference
        raise UsageError(
            f"{reference!r} is the beginning of an image's digest, and the name of another image",
            remedy=f"remove the name: rm {shlex.quote(str(path))}; or write more digits of the digest",
        )
    if not begun:
        raise StoreError(
            f"image {reference!r} not found in the store {store.root}", remedy="bareboat image ls"
        )
    if len(begun) > 1:
        raise UsageError(
            f"{len(begun)} images in the store begin with {reference!r}",
            remedy="write more digits of the digest",
        )
    digest = begun[0]
    own = [(name, store.root / "names" / name) for name, named in names.items() if named == digest]
    own += [(pinned, path) for pinned, (target, path) in pins.items() if target == digest]
    return digest, own


def _in_full(reference: str) -> str:
    """The reference as a pull pins it: `debian:12` becomes `docker.io/library/debian:12`."""
    from bareboat_images.oci.reference import parse

    try:
        return str(parse(reference, folder="/"))
    except UsageError:
        return reference


def _sweep_layers(
    store: Store,
    images: Iterable[Image],
    *,
    only: set[str] | None = None,
    dry_run: bool = False,
    uncached: Collection[str] = (),
) -> list[Freed]:
    """Remove layers of no image. `uncached`: records of the build cache that count as removed. All layers are
    first moved aside, and those claimed meanwhile are moved back: a pull writes its claims before it looks
    for layers, so it finds them either claimed or missing."""
    needed = {layer.diff_id for image in images for layer in image.layers}
    needed |= contents.claims(store, without=uncached)
    candidates = [
        diff_id
        for diff_id in contents.named(store.root / "layers")
        if diff_id not in needed
        and (only is None or diff_id in only)
        and ownership.obstacle(store.layer_folder(diff_id)) is None
    ]
    amounts = {diff_id: layer_amount(store, diff_id) for diff_id in candidates}
    if not dry_run and candidates:
        aside: dict[str, Path] = {}
        for diff_id in candidates:
            with contextlib.suppress(FileNotFoundError):  # another collection was faster
                aside[diff_id] = _set_aside(store, store.layer_folder(diff_id))
        again, _ = contents.images(store)
        needed = {layer.diff_id for image in again for layer in image.layers} | contents.claims(store)
        for diff_id, path in aside.items():
            if diff_id in needed:
                store.publish(path, store.layer_folder(diff_id))
            remove_tree(path)
        candidates = [diff_id for diff_id in candidates if diff_id not in needed]
    return [Freed(kind="layer", name=diff_id, amount=amounts[diff_id]) for diff_id in candidates]


def _sweep_flat(
    store: Store, images: Iterable[Image], *, only: set[str] | None = None, dry_run: bool = False
) -> list[Freed]:
    """Remove flat trees and packed files of no image."""
    needed = {image.digest for image in images}
    freed = []
    kinds = {"flat": "flat tree", "roots": "flat tree", "relinked": "flat tree", "packed": "packed image"}
    for name, kind in kinds.items():
        folder = store.root / name
        for digest in contents.named(folder):
            path = folder / digests.place(digest)
            if digest not in needed and (only is None or digest in only) and ownership.obstacle(path) is None:
                freed.append(Freed(kind=kind, name=digest, amount=walked(path, linked=False)))
                if not dry_run:
                    _discard(store, path)
    return freed


def _sweep_blobs(
    store: Store, images: Iterable[Image], now_ns: int, *, only: set[str] | None = None, dry_run: bool = False
) -> tuple[list[Freed], list[str]]:
    """Remove manifests and configs of no image. They are written before their image's entry: recent ones
    stay, unless their image has just been removed. It is unknown what a damaged manifest needs: then nothing
    is removed, and the digests of the damaged ones are returned."""
    blobs = {image.digest: contents.blobs(store, image.digest) for image in images}
    if damaged := sorted(digest for digest, needed in blobs.items() if needed is None):
        return [], damaged
    documents = contents.indexes(store).union(*(needed or () for needed in blobs.values()))
    freed = []
    for digest in contents.named(store.root / "blobs"):
        if digest in documents:
            continue
        path = store.blob(digest)
        if ownership.obstacle(path) is not None:
            continue
        if digest in only if only is not None else contents.age_days(path, now_ns) > _BLOBS_YOUNG_DAYS:
            freed.append(Freed(kind="blob", name=digest, amount=file_amount(path)))
            if not dry_run:
                _discard(store, path)
    return freed, []


def _sweep_own(store: Store, images: Iterable[Image], now_ns: int, *, dry_run: bool) -> list[Freed]:
    """Remove trees and packed files with mount points of jobs that were not submitted for
    `_OWN_KEPT_DAYS`."""
    freed = []
    for image in images:
        trees = [("tree for mounts", path) for path in store.roots(image.digest).glob("*")]
        files = [("file for mounts", path) for path in store.packed(image.digest, "sif").parent.glob("own/*")]
        for kind, path in sorted([*trees, *files]):
            if contents.age_days(path, now_ns) > _OWN_KEPT_DAYS and ownership.obstacle(path) is None:
                freed.append(Freed(kind=kind, name=image.digest, amount=walked(path, linked=False)))
                if not dry_run:
                    _discard(store, path)
    return freed


def _sweep_builds(store: Store, now_ns: int, *, everything: bool, dry_run: bool) -> list[Freed]:
    """Remove the build cache, cache mounts and downloads: all, or those unused for `_BUILDS_KEPT_DAYS`."""
    kinds = {
        "steps": "build step",
        "mounts": "cache mount",
        "downloads": "download",
        "metadata": "build step",
    }
    freed = []
    for name, kind in kinds.items():
        folder = store.builds() / name
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            old = contents.age_days(path, now_ns) > _BUILDS_KEPT_DAYS
            if (everything or old) and ownership.obstacle(path) is None:
                freed.append(Freed(kind=kind, name=path.name, amount=walked(path) + file_amount(path)))
                if not dry_run:
                    store.discard(path)
    return freed


def _sweep_captures(store: Store, gone: set[str], *, dry_run: bool) -> list[Freed]:
    """Remove records of captured environments whose image does not exist."""
    folder = store.root / "captures"
    freed = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        capture = store.read_capture(path)
        digest = "" if capture is None else capture.digest
        is_gone = digest in gone or not digest or not store.entry(digest).exists()
        if is_gone and ownership.obstacle(path) is None:
            freed.append(Freed(kind="capture", name=path.name, amount=file_amount(path)))
            if not dry_run:
                _discard(store, path)
    return freed


def _sweep_kernel_caches(store: Store, now_ns: int, *, dry_run: bool) -> list[Freed]:
    """Remove compiled GPU kernels of images that no longer exist, and of studies and projects that no job
    used for `_KERNELS_KEPT_DAYS`."""
    freed = []
    top = store.kernel_caches()
    for path in sorted(top.glob("*/*/*")) if top.is_dir() else []:
        of_image = path.parent.parent.name
        digest = next(filter(None, (digests.at(each, of_image) for each in digests.DIGITS)), None)
        is_gone = digest is not None and not store.entry(digest).exists()
        if is_gone or contents.age_days(path, now_ns) > _KERNELS_KEPT_DAYS:
            freed.append(Freed(kind="kernel cache", name=f"{of_image}/{path.name}", amount=file_amount(path)))
            if not dry_run:
                _discard(store, path)
                for folder in (path.parent, path.parent.parent):
                    with contextlib.suppress(OSError):
                        folder.rmdir()
    return freed


def _sweep_containers(store: Store, now_ns: int, *, dry_run: bool) -> list[Freed]:
    """Remove containers of shims without a name, and those of steps that ended early, in which no command
    started for `_CONTAINERS_KEPT_DAYS`."""
    freed = []
    for folder, container in Instances(store).every():
        old = contents.age_days(folder, now_ns) > _CONTAINERS_KEPT_DAYS
        if old and (container.temporary or not container.names):
            freed.append(Freed(kind="container", name=container.id, amount=walked(folder)))
            if not dry_run:
                _discard(store, folder)
    return freed


def _sweep_old(store: Store, now_ns: int, *, dry_run: bool) -> list[Freed]:
    """Remove abandoned parts, and old unfinished work and leases."""
    freed = []
    parts = [("part", f"parts/{algorithm}") for algorithm in digests.DIGITS]
    old = [*parts, ("unfinished work", "tmp"), ("lease", "leases")]
    for kind, folder in ((kind, store.root / name) for kind, name in old):
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if contents.age_days(path, now_ns) > _PARTS_KEPT_DAYS and ownership.obstacle(path) is None:
                freed.append(Freed(kind=kind, name=path.name, amount=walked(path) + file_amount(path)))
                if not dry_run:
                    _discard(store, path)
    return freed


def _prepare(store: Store) -> None:
    """Raise StoreError for a store of another version; remove the leftovers of dead processes."""
    try:
        version = untrusted.read_text(store.root / "version").strip()
    except FileNotFoundError:
        version = ""
    if version not in ("", VERSION):
        raise StoreError(
            f"the store {store.root} has version {version}; this Bareboat knows version {VERSION}",
            remedy="use the Bareboat that made it, or remove it",
        )
    (store.root / "tmp").mkdir(exist_ok=True)
    if not os.access(store.root / "tmp", os.W_OK):  # else every entry would seem to belong to others
        raise StoreError(
            f"the store {store.root} cannot be written, so nothing can be removed",
            remedy=f"ls -ld {shlex.quote(str(store.root))}; findmnt -T {shlex.quote(str(store.root))}",
        )
    store.sweep()


def _set_aside(store: Store, path: Path) -> Path:
    """Move a tree away, atomically for every reader. In tmp/ it has a name of this process's work in
    progress, so that it is swept if this process is killed; the rename needs no new inode."""
    target = store.root / "tmp" / f"{owner()}-g{next(_serials)}"
    os.rename(path, target)
    return target


def _discard(store: Store, path: Path) -> None:
    """Remove a tree or a file; a tree first disappears under its name."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            remove_tree(_set_aside(store, path))
        else:
            path.unlink()
