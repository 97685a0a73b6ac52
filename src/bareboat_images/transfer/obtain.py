"""Obtain: loads any reference into the store. The single entry point for all commands."""

from __future__ import annotations

from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.progress import Progress
from bareboat_images.registry.access import Access
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import locate
from bareboat_images.transfer.current import Pulled
from bareboat_images.transfer.pull import pull


def obtain(
    found: Reference,
    store: Store,
    access: Access,
    *,
    machine: str,
    limits: Limits,
    fresh: bool = False,
    keep_blobs: bool = False,
    progress: Progress = lambda *_: None,
) -> Pulled:
    """Load the image into the store, if the signature policy accepts it. Raises ImageError, StoreError,
    UsageError."""
    from bareboat_images.signatures.check import check

    state = None if found.transport is Transport.REGISTRY else locate.state_of_file(found)
    with store.scratch() as scratch:
        return pull(
            locate.open_source(found, access, scratch=scratch, max_ratio=limits.max_ratio),
            store,
            reference=str(found),
            machine=machine,
            limits=limits,
            root=state,
            fresh=fresh,
            keep_blobs=keep_blobs,
            judge=lambda digests: check(found, digests, access),
            progress=progress,
        )
