"""The contents of a store: images, their names, layers claimed by work in progress, and ages.

Ages are measured with the file system's clock, since this machine's may differ from it, or jump.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from bareboat.model import Image
from bareboat_base import digests
from bareboat_base.errors import StoreError
from bareboat_images import pinning
from bareboat_images.build import cache
from bareboat_images.store import Store

_DAY_NS = 86_400 * 10**9


def images(store: Store) -> tuple[list[Image], list[tuple[Path, str]]]:
    """Every image, by digest, and the unreadable entries, with the reason."""
    images, unreadable = [], []
    for path in store.entries():
        if not path.exists():  # removed meanwhile
            continue
        try:
            images.append(store.read(path, Image))
        except StoreError as error:
            if path.exists():
                unreadable.append((path, error.message))
    return images, unreadable


def names(store: Store) -> dict[str, set[str]]:
    """Digest -> names and pinned references."""
    found: dict[str, set[str]] = {}
    for name, digest in store.names().items():
        found.setdefault(digest, set()).add(name)
    for pin in store.pins():
        found.setdefault(pin.digest, set()).add(pin.reference)
    return found


def claims(store: Store, *, without: Collection[str] = ()) -> set[str]:
    """The layers claimed by work in progress, and by the build cache except the records `without`."""
    found = set(cache.layers(store, without=without))
    folder = store.root / "tmp"
    for path in folder.glob("*/claims") if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            found.update(path.read_text(errors="replace").split())
    return found


def pin_file(store: Store, reference: str) -> Path:
    """The file of a reference's pin."""
    hashed = hashlib.sha256(reference.encode("utf-8", "surrogateescape")).hexdigest()
    return store.root / "pins" / f"{hashed}.json"


def config_digest(store: Store, manifest: str) -> str | None:
    """The config's digest in a manifest, which may be damaged; None if it cannot be found."""
    try:
        data = store.blob(manifest).read_bytes()
    except FileNotFoundError:
        return None
    found = re.search(rb'"config"\s*:\s*\{[^{}]*"digest"\s*:\s*"(' + digests.PATTERN.encode() + rb')"', data)
    return found[1].decode() if found else None


def blobs(store: Store, manifest: str) -> set[str]:
    """A manifest's digest and all digests in it: its config, and its layers, which may be kept."""
    data = store.document(manifest) or b""
    return {manifest, *digests.find(data)}


def indexes(store: Store) -> set[str]:
    """The digests of the indexes by which pins cover their images."""
    found: set[str] = set()
    for pin in store.pins():
        found.update(pinning.indexes(pin, store.document))
    return found


def named(folder: Path) -> list[str]:
    """The digests that name the entries of a directory's sha256/ and sha512/."""
    found = []
    for algorithm in digests.DIGITS:
        place = folder / algorithm
        names = os.listdir(place) if place.is_dir() else ()
        found += sorted(filter(None, (digests.at(algorithm, name.removesuffix(".json")) for name in names)))
    return found


def states(place: Path) -> Iterator[os.stat_result]:
    """The status of everything below a directory. Entries that vanish meanwhile, or are unreadable, are
    omitted."""
    pending = [str(place)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)


def now_ns(store: Store) -> int:
    """The file system's time; this machine's if the store is not writable."""
    folder = store.root / "tmp"
    try:
        os.utime(folder)
        return folder.stat().st_mtime_ns
    except OSError:
        return time.time_ns()


def age_days(path: Path, now_ns: int) -> float:
    """Days since the last change; 0 for a path that does not exist."""
    try:
        return (now_ns - path.lstat().st_mtime_ns) / _DAY_NS
    except OSError:
        return 0.0
