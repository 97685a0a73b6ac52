"""Bundles: one file that transfers an image to a machine without a network.

A bundle is an OCI archive with the image's own manifest, and so with its digest; podman and skopeo can read
it if it has the layers' blobs that the manifest names. Its file `bareboat/pins.json` has the image's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bareboat_base import codec
from bareboat_base.errors import ImageError, UsageError
from bareboat_base.printable import one_line
from bareboat_images import pinning
from bareboat_images.model import Image, Pin
from bareboat_images.oci.reference import Transport, familiar, parse
from bareboat_images.progress import Progress
from bareboat_images.sources.archive import open_plain
from bareboat_images.store import Store
from bareboat_images.store.paths import is_image_name
from bareboat_images.transfer import export
from bareboat_images.transfer.current import Pulled

_PINS = "bareboat/pins.json"
_LARGEST_PINS = 1 << 20
_MOST_PINS = 100


class BundleNames(Struct, frozen=True, kw_only=True):
    """A file's names for its image, by evidence. `confirmed`: references with a digest that covers the
    image; `claimed`: tags, asserted only by the creator of the file; `false`: references with another image's
    digest, and texts that are not references to a registry. `own`: what an image of the store may be called.
    """

    confirmed: tuple[Pin, ...] = ()
    claimed: tuple[Pin, ...] = ()
    false: tuple[str, ...] = ()
    own: str | None = None


def pins_of(image: Image, store: Store, *, rewrite: bool) -> list[Pin]:
    """The names of an image for its bundle. `rewrite`: without digests, of which the file has another."""
    found = [pin for pin in store.pins() if pin.digest == image.digest and store.covers(pin)]
    return [pin for pin in found if not rewrite or pinning.digest_in(pin.reference) is None]


def save(
    image: Image,
    pins: Sequence[Pin],
    store: Store,
    path: Path,
    *,
    name: str,
    form: export.LayerForm = export.AS_STORED,
    progress: Progress = lambda *_: None,
) -> export.Saved:
    """Write the bundle atomically. Raises StoreError for a layer that was changed in the store."""
    pins = [pin for pin in pins if _names_registry(pin.reference)]
    indexes: dict[str, bytes] = {}
    for pin in pins:
        indexes |= pinning.indexes(pin, store.document)
    more = export.Additions(documents=indexes, files={_PINS: codec.to_json(tuple(pins))})
    return export.save_archive(store, image, path, name=name, form=form, more=more, progress=progress)


def called(path: Path, loaded: Pulled, *, now: str) -> BundleNames:
    """A file's names for the image that was loaded from it. Raises ImageError for a damaged list."""
    listed, image = pins(path), loaded.image
    if len(listed) > _MOST_PINS:
        raise ImageError(
            f"{path} has {len(listed):,} names for one image", remedy="do not trust it, or ask who made it"
        )
    confirmed: list[Pin] = []
    claimed: list[Pin] = []
    false: list[str] = []
    read = _documents(path)
    for pin in listed:
        asked = pinning.digest_in(pin.reference)
        if not _names_registry(pin.reference) or (
            asked is not None and pinning.chain(asked, image.digest, read) is None
        ):
            false.append(one_line(pin.reference))
            continue
        # With a root that does not cover the image, a later pull would assume that the tag still refers to
        # it.
        is_true = pinning.chain(pin.root, image.digest, read) is not None
        root = pin.root if is_true else image.digest
        known = Pin(reference=pin.reference, digest=image.digest, root=root, pinned_at=now)
        (claimed if asked is None else confirmed).append(known)
    own = (each for each in map(familiar, loaded.called) if is_image_name(each) and each != "image")
    return BundleNames(
        confirmed=tuple(confirmed), claimed=tuple(claimed), false=tuple(false), own=next(own, None)
    )


def bind(pins: Sequence[Pin], store: Store, path: Path) -> None:
    """Pin references of a bundle to its image in this store. Raises StoreError for one with another image's
    digest."""
    read = _documents(path)
    for pin in pins:
        for digest, data in pinning.indexes(pin, read).items():
            store.keep_document(digest, data)
        store.pin(pin)


def _names_registry(text: str) -> bool:
    """Whether the text is a full reference to a registry; paths of another machine are useless here."""
    try:
        found = parse(text, folder="/")
    except UsageError:
        return False
    return found.transport is Transport.REGISTRY and str(found) == text


def pins(path: Path) -> tuple[Pin, ...]:
    """The image's names in the store that saved the archive; empty for another tool's archive.

    A verdict on signatures is omitted: whoever wrote the file may have forged it.

    Raises ImageError for a damaged list.
    """
    archive = open_plain(path)  # a bundle is never compressed
    data = archive.small_file(_PINS, largest=_LARGEST_PINS) if archive is not None else None
    if data is None:
        return ()
    try:
        read = codec.from_json(data, tuple[Pin, ...], what="the list of names")
    except Exception as error:
        raise ImageError(f"{path}: {error}", remedy="copy the bundle again") from None
    return tuple(msgspec.structs.replace(pin, trust=None) for pin in read)


def _documents(path: Path) -> Callable[[str], bytes | None]:
    """A function that returns the small document stored under a digest among the archive's blobs."""
    archive = open_plain(path)
    return archive.document if archive is not None else lambda _digest: None
