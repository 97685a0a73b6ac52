"""Pinning: requires references with a digest, so that the image that runs is the one that was checked."""

from __future__ import annotations

from bareboat.model import Image
from bareboat_base import digests
from bareboat_base.errors import BareboatError, UsageError
from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.registry.access import Access
from bareboat_images.store import Store
from bareboat_images.transfer import locate


def check_reference(found: Reference, store: Store, access: Access, *, ask: bool) -> None:
    """Raise UsageError for a reference without a digest. The remedy names the digest: with `ask`, from the
    registry, else from the store."""
    if found.transport is not Transport.REGISTRY:
        if found.tag and digests.is_digest(found.tag):
            return
        raise UsageError(
            f"{found} has no digest, and digests are required here",
            remedy=f"bareboat image load {found.path}   # then name the image by the digest that this prints",
        )
    if found.digest is not None:
        return
    digest = (_asked(found, access) if ask else None) or _known(found, store)
    name = f"{found.registry}/{found.repository}"
    raise UsageError(
        f"{found} has no digest, and digests are required here",
        remedy=f"write {name}@{digest}, its current digest"
        if digest
        else f"write {name}@sha256:…; skopeo inspect docker://{found} shows the digest",
    )


def check_job_image(
    text: str, image: Image | None, store: Store, access: Access, *, folder: str, ask: bool
) -> None:
    """Like `check_reference`, for a job's image, which may be a digest in the store. A name in the store is
    refused."""
    if digests.is_digest(text):
        return
    if image is not None and store.knows(text):
        raise UsageError(
            f"{text} has no digest, and digests are required here",
            remedy=f'write image = "{image.digest}", its current digest',
        )
    check_reference(locate.read(text, folder=folder), store, access, ask=ask)


def _known(found: Reference, store: Store) -> str | None:
    pin = store.pinned(str(found))
    if pin is None:
        return None
    return pin.root if digests.is_digest(pin.root) else pin.digest


def _asked(found: Reference, access: Access) -> str | None:
    try:
        return locate.current_digest(found, access)
    except BareboatError:
        return None  # the refusal remains, only its remedy is less specific
