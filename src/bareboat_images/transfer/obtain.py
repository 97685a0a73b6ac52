"""Obtain: loads any reference into the store. The single entry point for all commands."""

from __future__ import annotations

from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.store import Store
from bareboat_images.transfer import locate
from bareboat_images.transfer.current import Pulled
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import pull


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
