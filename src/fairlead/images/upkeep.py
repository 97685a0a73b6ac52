"""What keeps a store in order: what it holds, whether that is whole, and what can go.

Nothing is removed under its name: a tree is first renamed into the store's tmp/, so a reader finds all of it
or nothing. To make room, nothing is written: that must work on a full disk. Ages are taken from the file
system's own clock, since this machine's may differ from it, or jump.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shlex
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from fairlead.errors import FairleadError, StoreError, UsageError
from fairlead.images import pack
from fairlead.images.layers import layer as canonical
from fairlead.images.progress import Progress
from fairlead.model import Image, Layer
from fairlead.store import FILE_KINDS, VERSION, Store, owner, remove_tree

#: A blob that nobody has fetched on for so long is not going to be finished; nor is a pull.
_PARTS_KEPT_DAYS = 7.0
_DAY_NS = 86_400 * 10**9

_HEX = re.compile(r"[0-9a-f]{64}")
_serials = itertools.count(1)


#: Where small files are: manifests and configs, facts, names.
_DOCUMENTS = ("blobs", "images", "captures", "names", "pins", "leases")


# -- du ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Space on the store's file system."""

    size_bytes: int = 0
    inodes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(size_bytes=self.size_bytes + other.size_bytes, inodes=self.inodes + other.inodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUsage:
    """What one image takes. `own` would be free without it; `shared` is in layers of other images too.

    `names`: what it is called, by name or by pinned reference.
    """

    digest: str
    names: tuple[str, ...]
    own: Amount
    shared: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the store takes, by what it is for. `unused` is in layers of no image; see `collect_garbage`.

    `flat` counts what flat trees add to the layers whose files they link; `total` counts nothing twice.
    """

    images: tuple[ImageUsage, ...]
    layers: Amount
    unused: Amount
    flat: Amount
    packed: Amount
    documents: Amount
    parts: Amount
    runs: Amount
    in_progress: Amount
    total: Amount


def usage(store: Store) -> Usage:
    """What is in the store, and what of it each image needs. Layers are not walked: their facts are kept.

    Raises StoreError for what this user may not read.
    """
    with store.guarded():
        images, _ = _images(store)
        amounts = {diff_id: _layer_amount(store, diff_id) for diff_id in _digests(store.root / "layers")}
        users: dict[str, set[str]] = {}
        for image in images:
            for layer in image.layers:
                users.setdefault(layer.diff_id, set()).add(image.digest)
        names = _names(store)
        per_image = []
        for image in images:
            own = shared = Amount()
            for diff_id in dict.fromkeys(layer.diff_id for layer in image.layers):
                amount = amounts.get(diff_id, Amount())
                if len(users[diff_id]) == 1:
                    own += amount
                else:
                    shared += amount
            per_image.append(
                ImageUsage(
                    digest=image.digest,
                    names=tuple(sorted(names.get(image.digest, ()))),
                    own=own,
                    shared=shared,
                )
            )
        layers = _sum(amounts.values())
        flat = _sum(_walked(store.root / name, linked=False) for name in ("flat", "relinked"))
        packed = _walked(store.root / "packed")
        documents = _sum(_walked(store.root / name) for name in _DOCUMENTS)
        parts = _walked(store.root / "parts")
        runs = _walked(store.root / "runs")
        in_progress = _walked(store.root / "tmp")
    return Usage(
        images=tuple(per_image),
        layers=layers,
        unused=_sum(amount for diff_id, amount in amounts.items() if diff_id not in users),
        flat=flat,
        packed=packed,
        documents=documents,
        parts=parts,
        runs=runs,
        in_progress=in_progress,
        total=_sum((layers, flat, packed, documents, parts, runs, in_progress)),
    )


def _layer_amount(store: Store, diff_id: str) -> Amount:
    """By the facts kept with the layer; a damaged layer is walked."""
    folder = store.layer_folder(diff_id)
    try:
        facts = store.stored_layer(diff_id)
        beside = [entry.stat(follow_symlinks=False) for entry in os.scandir(folder) if entry.name != "tree"]
    except (StoreError, OSError):
        return _walked(folder)
    return Amount(
        size_bytes=facts.unpacked_bytes + sum(state.st_size for state in beside),
        inodes=facts.inodes + 2 + len(beside),  # with the layer's folder, and its tree's
    )


def _walked(place: Path, *, linked: bool = True) -> Amount:
    """What is below a folder, each file once; without `linked`, files of several names are not counted."""
    size_bytes = inodes = 0
    seen: set[tuple[int, int]] = set()
    for state in _states(place):
        if stat.S_ISREG(state.st_mode):
            if state.st_nlink > 1:
                if not linked or (state.st_dev, state.st_ino) in seen:
                    continue
                seen.add((state.st_dev, state.st_ino))
            size_bytes += min(state.st_size, state.st_blocks * 512)  # a sparse file takes what is in it
        elif not linked and state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode):
            continue
        inodes += 1
    return Amount(size_bytes=size_bytes, inodes=inodes)


def _states(place: Path) -> Iterator[os.stat_result]:
    """Of everything below a folder. What goes away meanwhile, or cannot be read, is left out."""
    pending = [str(place)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)


def _sum(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, start=Amount())


# -- verify ------------------------------------------------------------------------------------------


class State(StrEnum):
    """What a check of a layer found."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    MISSING = "missing"
    UNKNOWN = "cannot be verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCheck:
    """One layer: what was found, and those of its files that are not as they were, where that can be told."""

    diff_id: str
    state: State
    detail: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One image: its layers, which of its documents (manifest, config) are damaged or missing, and which of
    the files that it is packed as are not as they were written."""

    digest: str
    layers: tuple[LayerCheck, ...]
    documents: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def ok(self) -> bool:
        bad = (State.DAMAGED, State.MISSING)
        return not self.documents and not self.packed and not any(layer.state in bad for layer in self.layers)


def verify(store: Store, image: Image, *, progress: Progress = lambda *_: None) -> Verified:
    """Read every byte of an image again and compare it with the digests that name it. Changes nothing.

    Raises StoreError for what this user may not read.
    """
    layers = list({layer.diff_id: layer for layer in image.layers}.values())
    total = sum(layer.size_bytes for layer in layers)
    done = 0
    checks = []
    with store.guarded():
        documents = _damaged_documents(store, image)
        for number, layer in enumerate(layers, 1):
            progress(f"verifying layer {number} of {len(layers)}", done, total)
            checks.append(_check_layer(store, layer))
            done += layer.size_bytes
        progress("verifying packed files", done, total)
        packed = _damaged_packed(store, image)
        progress("verified", done, total)
    found = Verified(digest=image.digest, layers=tuple(checks), documents=documents)
    remedy = "" if found.ok else store.how_to_get(image)
    if packed and not remedy:
        files = " ".join(shlex.quote(str(store.packed(image.digest, kind))) for kind in packed)
        remedy = f"rm {files}   # it is packed again when a job needs it"
    details = tuple(f"the {kind} file {detail}" for kind, detail in packed.items())
    return replace(found, packed=details, remedy=remedy)


def _damaged_packed(store: Store, image: Image) -> dict[str, str]:
    """Kind of file -> what is wrong with it. One without its facts is no packed image yet."""
    found = {}
    for kind in FILE_KINDS:
        path = store.packed(image.digest, kind)
        if not path.exists() or not pack.facts_of(path).exists():
            continue
        known = pack.about(path)
        if known is None:
            found[kind] = f"{path} is not what was written there"
        elif pack.sha256(path) != known.sha256:
            found[kind] = f"{path} was changed"
    return found


def _check_layer(store: Store, layer: Layer) -> LayerCheck:
    diff_id = layer.diff_id
    tree, recipe = store.layer(diff_id), store.recipe(diff_id)
    if not tree.is_dir():
        return LayerCheck(diff_id=diff_id, state=State.MISSING, detail=f"there is no {tree}")
    files: tuple[str, ...] = ()
    count = wanted = 0
    try:
        facts = store.stored_layer(diff_id)
        if recipe.exists() or not facts.rebuildable:
            # A recipe knows what the archive had; only the count tells what was added, or which link is gone.
            count, wanted = _count(tree), facts.inodes
        if recipe.exists():
            from fairlead.images.layers.recipe import check

            digest, damaged = check(tree, recipe)
            files = tuple(os.fsdecode(path) for path in damaged)
        elif facts.rebuildable:
            digest, _ = canonical.digest_tree(str(tree))
        else:
            digest = ""
    except FairleadError as error:
        return LayerCheck(diff_id=diff_id, state=State.DAMAGED, detail=error.message)
    except (OSError, ValueError) as error:  # an entry that this user cannot read, or that no layer holds
        return LayerCheck(diff_id=diff_id, state=State.DAMAGED, detail=str(error))
    if files or digest not in (diff_id, ""):
        return LayerCheck(
            diff_id=diff_id, state=State.DAMAGED, detail=f"its content gives {digest}", files=files
        )
    if count != wanted:
        return LayerCheck(
            diff_id=diff_id, state=State.DAMAGED, detail=f"it has {count:,} files and folders, not {wanted:,}"
        )
    if not digest:
        return LayerCheck(
            diff_id=diff_id,
            state=State.UNKNOWN,
            detail="how its archive was made could not be kept, so there is nothing to compare it with",
        )
    return LayerCheck(diff_id=diff_id, state=State.WHOLE)


def _count(tree: Path) -> int:
    """The inodes of a tree, its own folder's included."""
    found = {(state.st_dev, state.st_ino) for state in _states(tree)}
    return len(found) + 1


def _damaged_documents(store: Store, image: Image) -> tuple[str, ...]:
    damaged = []
    for what, digest in (("manifest", image.digest), ("config", _config_digest(store, image.digest))):
        if digest is None:
            continue
        try:
            data = store.blob(digest).read_bytes()
        except FileNotFoundError:
            damaged.append(f"the {what} {digest} is missing")
            continue
        if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
            damaged.append(f"the {what} {digest} was changed")
    return tuple(damaged)


def _config_digest(store: Store, manifest: str) -> str | None:
    """As the manifest tells it, in whatever state that is."""
    try:
        data = store.blob(manifest).read_bytes()
    except FileNotFoundError:
        return None
    found = re.search(rb'"config"\s*:\s*\{[^{}]*"digest"\s*:\s*"(sha256:[0-9a-f]{64})"', data)
    return found[1].decode() if found else None


# -- gc and rm ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """One thing that was removed, or would be: `kind` is image, layer, flat tree, packed image, blob, part,
    capture, lease or unfinished work."""

    kind: str
    name: str
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a garbage collection removed (or would), and what it left alone for a reason that can be told."""

    freed: tuple[Freed, ...]
    kept: tuple[str, ...] = ()

    @property
    def amount(self) -> Amount:
        return _sum(freed.amount for freed in self.freed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a removal did. `references` are the names and pins that are gone; `image_gone`: no other was left,
    and so the image went with what it alone needed."""

    digest: str
    references: tuple[str, ...]
    image_gone: bool
    freed: tuple[Freed, ...] = ()

    @property
    def amount(self) -> Amount:
        return _sum(freed.amount for freed in self.freed)


def collect_garbage(
    store: Store, *, dry_run: bool = False, older_than_days: float | None = None
) -> Collected:
    """Remove what no image needs: layers, flat trees, packed files, documents, blobs that were never fetched
    to their end.

    Images go only when they have neither name nor pin and are older than `older_than_days`; None keeps all.
    What a pull in progress claims stays. Raises StoreError for a store that cannot be written.
    """
    if not store.root.is_dir():
        return Collected(freed=())
    freed: list[Freed] = []
    kept: list[str] = []
    with store.guarded():
        if not dry_run:
            _prepare(store)
        now_ns = _now_ns(store)
        images, unreadable = _images(store)
        kept += [f"{path.name}: {error}" for path, error in unreadable]
        if older_than_days is not None:
            named = _names(store)
            for image in images:
                entry = _entry(store, image.digest)
                if image.digest not in named and _age_days(entry, now_ns) > older_than_days:
                    freed.append(Freed(kind="image", name=image.digest, amount=_file_amount(entry)))
                    if not dry_run:
                        entry.unlink(missing_ok=True)
        gone = {item.name for item in freed}
        images = [image for image in images if image.digest not in gone]
        if unreadable:
            # What a damaged entry needs is not known, so nothing that it may need can go.
            kept.append("layers and documents: an image's entry cannot be read")
        else:
            freed += _sweep_layers(store, images, dry_run=dry_run)
            freed += _sweep_flat_and_blobs(store, images, now_ns, dry_run=dry_run)
        freed += _sweep_captures(store, gone, dry_run=dry_run)
        freed += _sweep_old(store, now_ns, dry_run=dry_run)
    return Collected(freed=tuple(freed), kept=tuple(kept))


def remove(store: Store, reference: str) -> Removed:
    """Remove a name, a pinned reference, or an image by its digest or the beginning of one.

    By a name or a pin only that goes, and the image with it when it was the last; by a digest the image goes
    with all of its names and pins. Layers that other images need stay. Raises StoreError when there is
    nothing of that name.
    """
    with store.guarded():
        digest, references = _meant(store, reference)
        _prepare(store)
        for _, path in references:
            path.unlink(missing_ok=True)
        left = _names(store).get(digest, set())
        if left:
            return Removed(digest=digest, references=tuple(name for name, _ in references), image_gone=False)
        entry = _entry(store, digest)
        freed = [Freed(kind="image", name=digest, amount=_file_amount(entry))] if entry.exists() else []
        try:
            layers = {layer.diff_id for layer in store.read(entry, Image).layers}
        except StoreError:  # a damaged entry can go, too; what it needed is then for a garbage collection
            layers = set()
        config = _config_digest(store, digest)
        entry.unlink(missing_ok=True)
        images, unreadable = _images(store)
        if not unreadable:
            freed += _sweep_layers(store, images, only=layers)
            alone = {digest} if config is None else {digest, config}
            freed += _sweep_flat_and_blobs(store, images, _now_ns(store), only=alone)
    return Removed(
        digest=digest,
        references=tuple(name for name, _ in references),
        image_gone=True,
        freed=tuple(freed),
    )


def _meant(store: Store, reference: str) -> tuple[str, list[tuple[str, Path]]]:
    """The digest that a reference stands for, and the names and pins, with their files, that go with it."""
    names = store.names()
    if reference in names:
        return names[reference], [(reference, store.root / "names" / reference)]
    pins = {pin.reference: (pin.digest, _pin_file(store, pin.reference)) for pin in store.pins()}
    for written in (reference, _in_full(reference)):
        if written in pins:
            digest, path = pins[written]
            return digest, [(written, path)]
    short = reference.removeprefix("sha256:")
    found = [hexed for hexed in _hexes(store.root / "images") if hexed.startswith(short)] if short else []
    if not re.fullmatch(r"[0-9a-f]{6,64}", short) or not found:
        raise StoreError(
            f"there is no image {reference!r} in the store {store.root}", remedy="fairlead image ls"
        )
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} images in the store begin with {reference!r}",
            remedy="write more digits of the digest",
        )
    digest = "sha256:" + found[0]
    own = [(name, store.root / "names" / name) for name, named in names.items() if named == digest]
    own += [(pinned, path) for pinned, (target, path) in pins.items() if target == digest]
    return digest, own


def _in_full(reference: str) -> str:
    """As a pull pins it: `debian:12` becomes `docker.io/library/debian:12`."""
    from fairlead.images.sources.reference import parse

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
) -> list[Freed]:
    """Remove layers of no image. They are all set aside first, and what has been claimed meanwhile goes back:
    a pull writes its claims before it looks for layers, so it either finds them claimed or not at all."""
    needed = {layer.diff_id for image in images for layer in image.layers} | _claims(store)
    candidates = [
        diff_id
        for diff_id in _digests(store.root / "layers")
        if diff_id not in needed and (only is None or diff_id in only)
    ]
    amounts = {diff_id: _layer_amount(store, diff_id) for diff_id in candidates}
    if not dry_run and candidates:
        aside: dict[str, Path] = {}
        for diff_id in candidates:
            with contextlib.suppress(FileNotFoundError):  # another collection was quicker
                aside[diff_id] = _set_aside(store, store.layer_folder(diff_id))
        again, _ = _images(store)
        needed = {layer.diff_id for image in again for layer in image.layers} | _claims(store)
        for diff_id, path in aside.items():
            if diff_id in needed:
                store.publish(path, store.layer_folder(diff_id))
            remove_tree(path)
        candidates = [diff_id for diff_id in candidates if diff_id not in needed]
    return [Freed(kind="layer", name=diff_id, amount=amounts[diff_id]) for diff_id in candidates]


def _sweep_flat_and_blobs(
    store: Store, images: Iterable[Image], now_ns: int, *, only: set[str] | None = None, dry_run: bool = False
) -> list[Freed]:
    """Flat trees, packed files and documents of no image. A document is written before its image's entry:
    young ones stay, unless their image has just been removed."""
    digests = {image.digest for image in images}
    documents = digests | {d for digest in digests if (d := _config_digest(store, digest)) is not None}
    freed = []
    for kind, name in (("flat tree", "flat"), ("flat tree", "relinked"), ("packed image", "packed")):
        folder = store.root / name
        for digest in _digests(folder):
            if digest not in digests and (only is None or digest in only):
                path = folder / "sha256" / digest.removeprefix("sha256:")
                freed.append(Freed(kind=kind, name=digest, amount=_walked(path, linked=False)))
                if not dry_run:
                    _discard(store, path)
    for digest in _digests(store.root / "blobs"):
        if digest in documents:
            continue
        path = store.blob(digest)
        if digest in only if only is not None else _age_days(path, now_ns) > _BLOBS_YOUNG_DAYS:
            freed.append(Freed(kind="blob", name=digest, amount=_file_amount(path)))
            if not dry_run:
                _discard(store, path)
    return freed


#: An image's documents are written moments before its entry.
_BLOBS_YOUNG_DAYS = 1 / 24


def _sweep_captures(store: Store, gone: set[str], *, dry_run: bool) -> list[Freed]:
    """What says that an environment is an image which is not there."""
    folder = store.root / "captures"
    freed = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        digest = path.read_text(errors="replace")
        if digest in gone or not _entry(store, digest).exists():
            freed.append(Freed(kind="capture", name=path.name, amount=_file_amount(path)))
            if not dry_run:
                _discard(store, path)
    return freed


def _sweep_old(store: Store, now_ns: int, *, dry_run: bool) -> list[Freed]:
    """Parts that nobody goes on with; unfinished work and leases of machines not heard of any more."""
    freed = []
    old = {"part": "parts/sha256", "unfinished work": "tmp", "lease": "leases"}
    for kind, folder in ((kind, store.root / name) for kind, name in old.items()):
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if _age_days(path, now_ns) > _PARTS_KEPT_DAYS:
                freed.append(Freed(kind=kind, name=path.name, amount=_walked(path) + _file_amount(path)))
                if not dry_run:
                    _discard(store, path)
    return freed


def _prepare(store: Store) -> None:
    """Raise StoreError for a store that this Fairlead does not know; clear away what the dead left."""
    try:
        version = (store.root / "version").read_text(errors="replace").strip()
    except FileNotFoundError:
        version = ""
    if version not in ("", VERSION):
        raise StoreError(
            f"the store {store.root} has version {version}; this Fairlead knows version {VERSION}",
            remedy="use the Fairlead that made it, or remove it",
        )
    (store.root / "tmp").mkdir(exist_ok=True)
    store.sweep()


def _set_aside(store: Store, path: Path) -> Path:
    """Take a tree out, at once for every reader. It stands in tmp/ as this process's own work in progress
    would, so that it is swept away when we are killed; that takes no new inode."""
    target = store.root / "tmp" / f"{owner()}-g{next(_serials)}"
    os.rename(path, target)
    return target


def _discard(store: Store, path: Path) -> None:
    """Remove a tree or a file, which is gone under its name before any of it is removed."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            remove_tree(_set_aside(store, path))
        else:
            path.unlink()


# -- what is in the store ----------------------------------------------------------------------------


def _images(store: Store) -> tuple[list[Image], list[tuple[Path, str]]]:
    """Every image, by digest, and the entries that cannot be read, with the reason."""
    folder = store.root / "images" / "sha256"
    images, unreadable = [], []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        if not path.exists():  # removed meanwhile
            continue
        try:
            images.append(store.read(path, Image))
        except StoreError as error:
            if path.exists():
                unreadable.append((path, error.message))
    return images, unreadable


def _names(store: Store) -> dict[str, set[str]]:
    """Digest -> what it is called."""
    found: dict[str, set[str]] = {}
    for name, digest in store.names().items():
        found.setdefault(digest, set()).add(name)
    for pin in store.pins():
        found.setdefault(pin.digest, set()).add(pin.reference)
    return found


def _claims(store: Store) -> set[str]:
    """The layers that work in progress counts on."""
    found: set[str] = set()
    folder = store.root / "tmp"
    for path in folder.glob("*/claims") if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            found.update(path.read_text(errors="replace").split())
    return found


def _entry(store: Store, digest: str) -> Path:
    return store.root / "images" / "sha256" / (digest.removeprefix("sha256:") + ".json")


def _pin_file(store: Store, reference: str) -> Path:
    hashed = hashlib.sha256(reference.encode("utf-8", "surrogateescape")).hexdigest()
    return store.root / "pins" / f"{hashed}.json"


def _hexes(folder: Path) -> list[str]:
    """The digests that name what is in a folder's sha256/."""
    place = folder / "sha256"
    names = (name.removesuffix(".json") for name in os.listdir(place)) if place.is_dir() else ()
    return sorted(name for name in names if _HEX.fullmatch(name))


def _digests(folder: Path) -> list[str]:
    return ["sha256:" + hexed for hexed in _hexes(folder)]


def _now_ns(store: Store) -> int:
    """The file system's time; this machine's where the store cannot be written."""
    folder = store.root / "tmp"
    try:
        os.utime(folder)
        return folder.stat().st_mtime_ns
    except OSError:
        return time.time_ns()


def _age_days(path: Path, now_ns: int) -> float:
    """Since the last change; a path that is gone has no age."""
    try:
        return (now_ns - path.lstat().st_mtime_ns) / _DAY_NS
    except OSError:
        return 0.0


def _file_amount(path: Path) -> Amount:
    try:
        state = path.lstat()
    except OSError:
        return Amount()
    return Amount(size_bytes=0 if stat.S_ISDIR(state.st_mode) else state.st_size, inodes=1)
