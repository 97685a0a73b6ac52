"""The contents of a store: images, their names, layers claimed by work in progress, and ages.

Ages are measured with the file system's clock, since this machine's may differ from it, or jump.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from bareboat_base import digests
from bareboat_base.errors import ImageError, StoreError
from bareboat_base.files import untrusted
from bareboat_images import pinning
from bareboat_images.builder import cache
from bareboat_images.oci import manifest as manifests
from bareboat_images.oci.manifest import Manifest
from bareboat_images.oci.source import Document
from bareboat_images.store import Store

_LARGEST_CLAIMS = 16 << 20
_DAY_NS = 86_400 * 10**9


def names(store: Store, unreadable: list[str] | None = None) -> dict[str, set[str]]:
    """Digest -> names and pinned references. `unreadable`: as of `Store.names`; the image of such a name is
    not known."""
    found: dict[str, set[str]] = {}
    for name, digest in store.names(unreadable).items():
        found.setdefault(digest, set()).add(name)
    for pin in store.pins(unreadable):
        found.setdefault(pin.digest, set()).add(pin.reference)
    return found


def claims(store: Store, *, without: Collection[str] = ()) -> set[str]:
    """The layers claimed by work in progress, and by the build cache except the records `without`."""
    found = set(cache.layers(store, without=without))
    folder = store.root / "tmp"
    for path in folder.glob("*/claims") if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            found.update(untrusted.read_text(path, limit=_LARGEST_CLAIMS).split())
    return found


def manifest(store: Store, digest: str) -> Manifest | None:
    """The manifest of an image; None for a missing or damaged one, whose config and layers are unknown."""
    data = document(store, digest)
    if data is None or not digests.is_of(digest, data):
        return None
    try:
        return manifests.manifest(Document(data=data, media_type="", digest=digest), name=digest)
    except ImageError:
        return None


def config_digest(store: Store, digest: str) -> str | None:
    """The digest of an image's config; None if its manifest is missing or damaged."""
    read = manifest(store, digest)
    return None if read is None else read.config.digest


def blobs(store: Store, digest: str) -> set[str] | None:
    """The digests of an image's manifest, of its config, and of its layers, which may be kept. None if the
    manifest is missing or damaged."""
    read = manifest(store, digest)
    return None if read is None else {digest, read.config.digest, *(layer.digest for layer in read.layers)}


def document(store: Store, digest: str) -> bytes | None:
    """A stored document, not verified; None for a missing or unreadable one."""
    try:
        return store.document(digest)
    except StoreError:
        return None


def indexes(store: Store) -> set[str]:
    """The digests of the indexes by which pins cover their images."""
    found: set[str] = set()
    for pin in store.pins():
        found.update(pinning.indexes(pin, functools.partial(document, store)))
    return found


def named(folder: Path) -> list[str]:
    """The digests that name the entries of a directory's sha256/."""
    place = folder / digests.ALGORITHM
    names = os.listdir(place) if place.is_dir() else ()
    return sorted(filter(None, (digests.of_digits(name.removesuffix(".json")) for name in names)))


def states(place: Path, unreadable: list[str]) -> Iterator[os.stat_result]:
    """The status of everything below a directory. Entries that vanish meanwhile are omitted; directories that
    cannot be read, too, and are added to `unreadable`."""
    pending = [str(place)]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            unreadable.append(folder)


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
