"""Pull: an image from where it is into the store, and a pin of what the reference stands for.

Of many processes that pull the same image, one fetches it; the others wait for it, and have loaded nothing
that only fetching needs.
"""

from __future__ import annotations

from fairlead.clock import utc_now
from fairlead.errors import ImageError
from fairlead.images import lease
from fairlead.images.current import Pulled
from fairlead.images.layers.limits import Limits
from fairlead.images.progress import Progress
from fairlead.images.sources import manifest
from fairlead.images.sources.source import Document, Source
from fairlead.model import Image, Pin
from fairlead.store import Store


def pull(
    source: Source,
    store: Store,
    *,
    reference: str,
    machine: str,
    limits: Limits,
    root: str | None = None,
    fresh: bool = False,
    progress: Progress = lambda *_: None,
) -> Pulled:
    """Bring the image into the store and pin the reference to its digest.

    `machine` is the architecture, as `uname -m` names it. `root`: what is pinned as the reference's state;
    None: the digest of the root document. With `fresh`, layers that are there are fetched
    and unpacked again. Raises ImageError for what is wrong with the source or the image, StoreError for a
    store that cannot take it.
    """
    progress("asking for the manifest", 0, 0)
    document = source.document()
    chosen = _choose(source, document, machine)
    pin = Pin(reference=reference, digest=chosen.digest, root=root or document.digest, pinned_at=utc_now())

    def there() -> bool:
        return not fresh and store.has_image(chosen.digest)

    def waiting(holder: str) -> None:
        progress(f"waiting for {holder}, which is pulling the same image", 0, 0)

    with lease.hold(store.lease(f"image-{pin.digest[7:]}"), until=there, waiting=waiting) as mine:
        if mine:
            image, fetched = _bring(source, store, chosen, pin, machine, limits, fresh, progress)
        else:
            image, fetched = store.image(chosen.digest), 0
            store.pin(pin)
    return Pulled(image=image, fetched=fetched, shared=len(image.layers) - fetched)


def _bring(
    source: Source,
    store: Store,
    chosen: Document,
    pin: Pin,
    machine: str,
    limits: Limits,
    fresh: bool,
    progress: Progress,
) -> tuple[Image, int]:
    """The image, whose layers are fetched as far as they are not there, and how many were fetched."""
    read = manifest.manifest(chosen, name=source.name)
    described = source.document(read.config.digest)
    config = manifest.config(described, name=source.name)
    manifest.check_machine(config, machine=machine, name=source.name)
    if len(config.diff_ids) != len(read.layers):
        raise ImageError(
            f"{source.name} contradicts itself: {len(read.layers)} layers in its manifest, "
            f"{len(config.diff_ids)} in its config",
            remedy="the image must be built and pushed again",
        )
    from fairlead.images import fetch

    with store.scratch() as scratch:
        fetched = fetch.bring_layers(
            source,
            store,
            scratch,
            read.layers,
            config.diff_ids,
            limits=limits,
            fresh=fresh,
            progress=progress,
        )
        image = fetch.join(store, config, chosen.digest, pin.reference, source.notes)
        store.put_image(image, manifest=chosen.data, config=described.data, config_digest=described.digest)
        store.pin(pin)
    return image, fetched


def _choose(source: Source, root: Document, machine: str) -> Document:
    """The manifest for this machine, through an index or two."""
    document = root
    for _ in range(3):
        offered = manifest.platforms(document, name=source.name)
        if offered is None:
            return document
        document = source.document(manifest.choose(offered, machine=machine, name=source.name).digest)
    raise ImageError(f"{source.name} is an index of indexes of indexes; that is no image")
