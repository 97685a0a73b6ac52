"""Removal of unneeded contents (`image rm --unused`, `image rm`).

A tree is never removed under its name: it is first renamed into the store's tmp/, so a reader finds all of it
or nothing. Removal writes nothing, so that it works on a full disk.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from bareboat_base import digests
from bareboat_base.errors import StoreError, UsageError
from bareboat_base.files import ownership
from bareboat_base.files.trees import remove_tree
from bareboat_images.model import Image
from bareboat_images.store import Store, owner
from bareboat_images.store.instances import Instances
from bareboat_images.upkeep import contents
from bareboat_images.upkeep.space import Amount, file_amount, layer_amount, total

#: Kind, place in the store, and the days without use after which it goes: results of builds, abandoned blobs,
#: pulls and leases, and trees and files with the mount points of some jobs, since their last submission.
_AGED = (
    ("build step", "builds/steps/*", 30.0),
    ("cache mount", "builds/mounts/*", 30.0),
    ("download", "builds/downloads/*", 30.0),
    ("build step", "builds/metadata/*", 30.0),
    ("part", f"parts/{digests.ALGORITHM}/*", 7.0),
    ("unfinished work", "tmp/*", 7.0),
    ("lease", "leases/*", 7.0),
    ("tree for mounts", f"roots/{digests.ALGORITHM}/*/*", 90.0),
    ("file for mounts", f"packed/{digests.ALGORITHM}/*/own/*", 90.0),
)
#: Their files have other names in layers, or in the trees of an image.
_LINKED = ("flat tree", "packed image", "tree for mounts", "file for mounts")
#: Directory of what is made of an image -> its kind.
_MADE = {"flat": "flat tree", "roots": "flat tree", "relinked": "flat tree", "packed": "packed image"}
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
    """The items that a garbage collection removed (or would), and those kept because of a fault or a use,
    with the reason."""

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
    used: Collection[tuple[str, str]] = (),
) -> Collected:
    """Remove what no image needs: layers, flat trees, packed files, manifests and configs, unfinished blobs.

    Images are removed only if they have neither name nor pin, are older than `older_than_days` (None keeps
    all), and are not in `used`: digests, and what uses each. Layers claimed by a pull in progress stay. With
    `build_cache`, all of the build cache is removed.
    Raises StoreError for a store that is not writable.
    """
    if not store.root.is_dir():
        return Collected(freed=())
    freed: list[Freed] = []
    kept: list[str] = []
    with store.guarded():
        if not dry_run:
            _prepare(store)
        now_ns = contents.now_ns(store)
        unreadable: list[tuple[Path, str]] = []
        images = store.images(unreadable)
        kept += [f"{path.name}: {error}" for path, error in unreadable]
        if older_than_days is not None:
            unnamed = {each[1]: each for each in _unnamed(store, images, now_ns, older_than_days, kept)}
            kept += [f"{digests.short(each)}: {why}" for each, why in used if unnamed.pop(each, None)]
            freed += _sweep(store, unnamed.values(), dry_run=dry_run)
        freed += _sweep(store, _aged(store, now_ns, every_build=build_cache), dry_run=dry_run)
        cached = {item.name for item in freed if item.kind == "build step"} if dry_run else set()
        gone = {item.name for item in freed if item.kind == "image"}
        images = [image for image in images if image.digest not in gone]
        if unreadable:
            # It is unknown what a damaged entry needs, so nothing that it may need is removed.
            kept.append("layers and documents: an image's entry cannot be read")
        else:
            # First what is made of layers: its files are not counted while layers have them.
            freed += _sweep(store, _made(store, images), dry_run=dry_run)
            freed += _sweep_layers(store, images, dry_run=dry_run, uncached=cached)
            freed += _sweep(store, _blobs(store, images, now_ns, kept), dry_run=dry_run)
        others = itertools.chain(
            _captures(store, gone), _kernel_caches(store, now_ns, gone), _containers(store, now_ns)
        )
        freed += _sweep(store, others, dry_run=dry_run)
    return Collected(freed=tuple(freed), kept=tuple(kept))


def remove(store: Store, reference: str, *, dry_run: bool = False) -> Removed:
    """Remove a name, a pinned reference, or an image by its digest or the beginning of one.

    For a name or a pin, only that is removed, and the image with it if it was the last; for a digest, the
    image with all its names and pins. Layers that other images need stay. With `dry_run` nothing is removed.
    Raises StoreError if the reference does not exist.
    """
    with store.guarded():
        digest, references = meant(store, reference)
        entry = store.entry(digest)
        named = tuple(name for name, _ in references)
        left = _left(store, digest) - set(named)
        _check_removable(store, digest, [path for _, path in references], image_too=not left)
        indexes = contents.indexes(store)
        if not dry_run:
            _prepare(store)
            for _, path in references:
                path.unlink(missing_ok=True)
            left = _left(store, digest)  # another may have been added meanwhile
        if left:
            return Removed(digest=digest, references=named, image_gone=False, kept_by=tuple(sorted(left)))
        try:
            layers = {layer.diff_id for layer in store.read(entry, Image).layers}
        except StoreError:  # a damaged entry is removed, too; its layers are left to a garbage collection
            layers = set()
        documents = (contents.blobs(store, digest) or {digest}) | indexes
        own = [("image", digest, entry)] if entry.exists() else []
        freed = _sweep(store, own, dry_run=dry_run)
        unreadable: list[tuple[Path, str]] = []
        images = [each for each in store.images(unreadable) if not dry_run or each.digest != digest]
        if not unreadable:
            freed += _sweep(store, _made(store, images, only=documents), dry_run=dry_run)
            freed += _sweep_layers(store, images, only=layers, dry_run=dry_run)
            blobs = _blobs(store, images, contents.now_ns(store), [], only=documents)
            freed += _sweep(store, blobs, dry_run=dry_run)
    return Removed(digest=digest, references=named, image_gone=True, freed=tuple(freed))


def _left(store: Store, digest: str) -> set[str]:
    """The names and pins of an image, and what cannot be read and may be one."""
    unreadable: list[str] = []
    return contents.names(store, unreadable).get(digest, set()) | set(unreadable)


def _check_removable(store: Store, digest: str, references: list[Path], *, image_too: bool) -> None:
    """Raise StoreError, before any change, unless this user may remove everything affected: in a group's
    store anybody may use names, but an image belongs to the user who pulled it."""
    paths = list(references)
    if image_too:
        unreadable: list[tuple[Path, str]] = []
        images = store.images(unreadable)
        needed = {layer.diff_id for image in images if image.digest != digest for layer in image.layers}
        own = {layer.diff_id for image in images if image.digest == digest for layer in image.layers}
        config = contents.config_digest(store, digest)
        paths += [store.entry(digest), *map(store.blob, filter(None, (digest, config)))]
        if not unreadable:
            paths += [store.layer_folder(diff_id) for diff_id in own - needed]
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
        raise store.no_image(reference).but(remedy="bareboat image ls")
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
        again = store.images([])
        needed = {layer.diff_id for image in again for layer in image.layers} | contents.claims(store)
        for diff_id, path in aside.items():
            if diff_id in needed:
                store.publish(path, store.layer_folder(diff_id))
            remove_tree(path)
        candidates = [diff_id for diff_id in candidates if diff_id not in needed]
    return [Freed(kind="layer", name=diff_id, amount=amounts[diff_id]) for diff_id in candidates]


Candidate = tuple[str, str, Path]
"""What can go: its kind, its name, and the file or tree."""


def _sweep(store: Store, candidates: Iterable[Candidate], *, dry_run: bool) -> list[Freed]:
    """Remove those that this user may remove."""
    freed = []
    for kind, name, path in candidates:
        if ownership.obstacle(path) is None:
            amount = total([Amount.below(path, linked=kind not in _LINKED), file_amount(path)])
            freed.append(Freed(kind=kind, name=name, amount=amount))
            if not dry_run:
                _discard(store, path)
    return freed


def _unnamed(
    store: Store, images: Iterable[Image], now_ns: int, days: float, kept: list[str]
) -> Iterator[Candidate]:
    """Images without a name and a pin for so many days. None where a name cannot be read: any may have it."""
    unknown: list[str] = []
    named = contents.names(store, unknown)
    kept += [f"images: {each}" for each in unknown]
    for image in images if not unknown else ():
        entry = store.entry(image.digest)
        if image.digest not in named and contents.age_days(entry, now_ns) > days:
            yield "image", image.digest, entry


def _aged(store: Store, now_ns: int, *, every_build: bool) -> Iterator[Candidate]:
    """What nobody used for long, and all results of builds if asked for."""
    for kind, pattern, days in _AGED:
        is_build = pattern.startswith("builds/")
        tops = (store.own,) if is_build else store.made_in
        for path in sorted(each for top in tops for each in top.glob(pattern)):
            if (every_build and is_build) or contents.age_days(path, now_ns) > days:
                # Above what is made of an image is a directory with the digits of its digest.
                found = [digests.of_digits(each.name) for each in path.parents[:2] if kind in _LINKED]
                yield kind, next(filter(None, found), path.name), path


def _made(store: Store, images: Iterable[Image], *, only: set[str] | None = None) -> Iterator[Candidate]:
    """Trees and packed files of no image."""
    needed = {image.digest for image in images}
    for name, kind in _MADE.items():
        for top in store.made_in:
            for digest in contents.named(top / name):
                if digest not in needed and (only is None or digest in only):
                    yield kind, digest, top / name / digests.place(digest)


def _blobs(
    store: Store, images: Iterable[Image], now_ns: int, kept: list[str], *, only: set[str] | None = None
) -> Iterator[Candidate]:
    """Manifests and configs of no image. They are written before their image's entry: recent ones stay,
    unless their image has just been removed. None where a manifest is damaged: what it needs is unknown."""
    blobs = {image.digest: contents.blobs(store, image.digest) for image in images}
    if damaged := sorted(digest for digest, needed in blobs.items() if needed is None):
        kept += [f"documents: the manifest of {digests.short(each)} is damaged" for each in damaged]
        return
    documents = contents.indexes(store).union(*(needed or () for needed in blobs.values()))
    for digest in contents.named(store.root / "blobs"):
        path = store.blob(digest)
        goes = digest in only if only is not None else contents.age_days(path, now_ns) > _BLOBS_YOUNG_DAYS
        if goes and digest not in documents:
            yield "blob", digest, path


def _captures(store: Store, gone: set[str]) -> Iterator[Candidate]:
    """Records of captured environments whose image does not exist."""
    for path in sorted((store.root / "captures").glob("*")):
        capture = store.read_capture(path)
        digest = "" if capture is None else capture.digest
        if digest in gone or not digest or not store.entry(digest).exists():
            yield "capture", path.name, path


def _kernel_caches(store: Store, now_ns: int, gone: set[str]) -> Iterator[Candidate]:
    """Compiled GPU kernels of images that no longer exist, and of studies and projects that no job used for
    `_KERNELS_KEPT_DAYS`."""
    top = store.kernel_caches()
    for path in sorted(top.glob("*/*/*")):
        of_image = path.parent.parent.name
        digest = digests.of_digits(of_image)
        is_gone = digest is not None and (digest in gone or not store.entry(digest).exists())
        if is_gone or contents.age_days(path, now_ns) > _KERNELS_KEPT_DAYS:
            yield "kernel cache", f"{of_image}/{path.name}", path


def _containers(store: Store, now_ns: int) -> Iterator[Candidate]:
    """Containers of shims without a name, and those of steps that ended early, in which no command started
    for `_CONTAINERS_KEPT_DAYS`."""
    for folder, container in Instances(store).every():
        old = contents.age_days(folder, now_ns) > _CONTAINERS_KEPT_DAYS
        if old and (container.temporary or not container.names):
            yield "container", container.id, folder


def _prepare(store: Store) -> None:
    """Raise StoreError for a store of another version, or that is not writable; remove the leftovers of dead
    processes."""
    store.check_version()
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
    root = store.root if path.is_relative_to(store.root) else store.own
    target = root / "tmp" / f"{owner()}-g{next(_serials)}"
    target.parent.mkdir(exist_ok=True)
    os.rename(path, target)
    return target


def _discard(store: Store, path: Path) -> None:
    """Remove a tree or a file; a tree first disappears under its name. Of kernel caches also the directories
    above that are empty now."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            remove_tree(_set_aside(store, path))
        else:
            path.unlink()
    if path.is_relative_to(store.kernel_caches()):
        with contextlib.suppress(OSError):
            path.parent.rmdir()
            path.parent.parent.rmdir()
