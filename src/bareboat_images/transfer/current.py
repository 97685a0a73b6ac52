"""Checks whether a pull has anything to do. Imports little, since usually it has not."""

from __future__ import annotations

import os

from msgspec import Struct

from bareboat_base import architectures
from bareboat_images.model import Image
from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.registry.access import Access
from bareboat_images.signatures import place
from bareboat_images.store import Store
from bareboat_images.transfer import locate


class Pulled(Struct, frozen=True, kw_only=True):
    """The result of a pull: `fetched` layers came from the source, `shared` ones were in the store.
    `called`: the image's names in an archive."""

    image: Image
    fetched: int
    shared: int
    called: tuple[str, ...] = ()


def current(found: Reference, store: Store, access: Access, *, machine: str) -> Pulled | None:
    """The image in the store, if the reference still refers to it; sends at most one request to a registry.

    An image that the signature policy has not accepted is not current, nor is one for another `machine`.
    """
    pin = store.pinned(str(found))
    if pin is None or not store.has_image(pin.digest):
        return None
    image = store.image(pin.digest)
    if architectures.oci(image.architecture) not in (architectures.oci(machine), "", "unknown"):
        return None
    if not place.requires_nothing(access.policy, os.environ):
        from bareboat_images.signatures.check import holds

        if not holds(found, pin, access):
            return None
    if found.transport is not Transport.REGISTRY:
        if locate.state_of_file(found) != pin.root:
            return None
    elif found.digest is None and locate.current_digest(found, access) != pin.root:
        return None
    return Pulled(image=image, fetched=0, shared=len(image.layers))
