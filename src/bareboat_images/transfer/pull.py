"""Pulls an image from its source into the store, and pins the reference to its digest.

Of several processes that pull the same image, one fetches it; the others wait, without importing the modules
that only fetching needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bareboat_base import digests
from bareboat_base.clock import utc_now
from bareboat_base.errors import ImageError
from bareboat_images import lease, pinning
from bareboat_images.model import Image, Pin
from bareboat_images.oci import manifest
from bareboat_images.oci.reference import Reference, Transport, familiar
from bareboat_images.oci.source import Descriptor, Document, Source
from bareboat_images.store import Store
from bareboat_images.transfer import locate
from bareboat_images.transfer.blobs import is_kept
from bareboat_images.transfer.current import Pulled
from bareboat_images.transfer.options import PullOptions

if TYPE_CHECKING:
    from bareboat_images.signatures.check import Checked

    Judge = Callable[[tuple[str, ...]], Checked]


def obtain(found: Reference, store: Store, options: PullOptions) -> Pulled:
    """Load the image into the store, if the signature policy accepts it. Raises ImageError, StoreError,
    UsageError."""
    from bareboat_images.signatures.check import check

    access = options.access
    state = None if found.transport is Transport.REGISTRY else locate.state_of_file(found)
    with store.scratch() as scratch:
        return pull(
            locate.open_source(found, access, scratch=scratch, max_ratio=options.limits.max_ratio),
            store,
            reference=str(found),
            options=options,
            root=state,
            judge=lambda digests: check(found, digests, access),
        )


def pull(
    source: Source,
    store: Store,
    *,
    reference: str,
    options: PullOptions,
    root: str | None = None,
    judge: Judge | None = None,
) -> Pulled:
    """Load the image into the store and pin the reference to its digest.

    `root`: the state pinned for the reference; None: the digest of the root document. `judge` gets the
    digests of the manifest and of the indexes that led to it, before layers are fetched, and raises when the
    image is refused.

    Raises ImageError for a fault of the source or the image, StoreError when the store cannot accept it.
    """
    file = reference.rpartition("/")[2]
    options.progress(f"reading {file}" if source.local else "asking for the manifest", 0, 0)
    try:
        document = source.document()
    except ImageError as error:
        guess = store.guess(familiar(reference))
        raise error.but(message=error.message + guess) from error.__cause__
    passed = _choose(source, document, options.machine)
    chosen = passed[-1]
    _check_digest(reference, passed, source.name)
    checked = judge(tuple(dict.fromkeys(each.digest for each in reversed(passed)))) if judge else None
    for index in passed[:-1]:
        store.keep_document(index.digest, index.data)
    pin = Pin(
        reference=reference,
        digest=chosen.digest,
        root=root or document.digest,
        pinned_at=utc_now(),
        trust=checked.trust if checked else None,
    )
    confirm = checked.confirm if checked else lambda: None

    def there() -> bool:
        return (
            not options.fresh
            and store.has_image(chosen.digest)
            and (not options.keep_blobs or not unkept(store, store.image(chosen.digest), chosen))
        )

    def waiting(holder: str) -> None:
        options.progress(f"waiting for {holder}, which is pulling the same image", 0, 0)

    with lease.hold(store.lease(f"image-{digests.hexed(pin.digest)}"), until=there, waiting=waiting) as mine:
        if mine:
            image, fetched = _bring(source, store, chosen, pin, options, confirm)
        else:
            image, fetched = store.image(chosen.digest), 0
            manifest.check_machine(image.architecture, machine=options.machine, name=source.name)
            confirm()
            store.pin(pin)
    shared = len(image.layers) - fetched
    return Pulled(image=image, fetched=fetched, shared=shared, called=source.called)


def _bring(
    source: Source,
    store: Store,
    chosen: Document,
    pin: Pin,
    options: PullOptions,
    confirm: Callable[[], None],
) -> tuple[Image, int]:
    """The image, after fetching its missing layers, and the number of layers fetched."""
    read = manifest.manifest(chosen, name=source.name)
    described = source.document(read.config.digest)
    config = manifest.config(described, name=source.name)
    manifest.check_machine(config.architecture, os=config.os, machine=options.machine, name=source.name)
    if len(config.diff_ids) != len(read.layers):
        raise ImageError(
            f"{source.name} contradicts itself: {len(read.layers)} layers in its manifest, "
            f"{len(config.diff_ids)} in its config",
            remedy="the image must be built and pushed again",
        )
    from bareboat_images.transfer import fetch

    with store.scratch() as scratch:
        work = fetch.Work(
            source, store, scratch, options.limits, options.progress, keep_blobs=options.keep_blobs
        )
        blobs = [source.held(*pair) for pair in zip(read.layers, config.diff_ids, strict=True)]
        fetched = fetch.bring_layers(work, blobs, config.diff_ids, fresh=options.fresh)
        confirm()
        image = fetch.join(store, config, chosen.digest, pin.reference, (*source.notes, *config.notes))
        store.put_image(image, manifest=chosen.data, config=described.data)
        store.pin(pin)
    return image, fetched


def unkept(store: Store, image: Image, document: Document) -> tuple[Descriptor, ...]:
    """The image's layers that the store has only unpacked, not in the form that its manifest names."""
    read = manifest.manifest(document, name=image.reference or image.digest)
    return tuple(
        descriptor
        for descriptor, layer in zip(read.layers, image.layers, strict=True)
        if descriptor.digest != layer.diff_id and not is_kept(store, descriptor)
    )


def _check_digest(reference: str, passed: list[Document], name: str) -> None:
    """Raise ImageError if the digest in the reference is neither the manifest's nor that of an index that led
    to it."""
    asked = pinning.digest_in(reference)
    if asked is not None and asked not in {each.digest for each in passed}:
        raise ImageError(
            f"{name} does not match its digest",
            context=f"expected {asked}, found {passed[-1].digest}",
            remedy="name the image without the digest, or get the one that has it",
        )


def _choose(source: Source, root: Document, machine: str) -> list[Document]:
    """The manifest for this machine, preceded by the indexes that led to it, at most two."""
    passed = [root]
    for _ in range(3):
        offered = manifest.platforms(passed[-1], name=source.name)
        if offered is None:
            return passed
        passed.append(source.document(manifest.choose(offered, machine=machine, name=source.name).digest))
    raise ImageError(f"{source.name} is an index of indexes of indexes; that is not an image")
