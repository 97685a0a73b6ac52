"""Pins: whether a reference may refer to an image.

A reference with a digest refers to exactly that content. The digest is that of the image's manifest, or of an
index that lists the manifest; in that case the index is stored, and the chain is verified at every use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from bareboat_base import digests
from bareboat_base.errors import ImageError
from bareboat_images.model import Pin

#: Reads the stored bytes of a digest; None where there are none.
Read: TypeAlias = Callable[[str], bytes | None]

#: Prefixes of transports without digests, whatever their path looks like.
_PATHS = ("/", "sif:", "squashfs:", "rootfs:")
#: Prefixes of transports whose tag may be a digest.
_TAGGED = ("oci:", "oci-archive:", "docker-archive:")
_MOST_INDEXES = 3
_MOST_LISTED = 1000


def digest_in(reference: str) -> str | None:
    """The digest in a full reference, as written by `str(Reference)`."""
    if reference.startswith(_PATHS):
        return None
    if reference.startswith(_TAGGED):
        reference = reference.split(":", 2)[-1] if reference.count(":") >= 2 else ""
    found = reference.rpartition("@")[2]
    return found if digests.is_digest(found) else None


def chain(outer: str, digest: str, read: Read) -> tuple[bytes, ...] | None:
    """The indexes by which the digest `outer` covers the manifest `digest`, outermost first; empty where both
    are equal. None where the stored documents do not prove it."""
    found = _chain(outer, digest, read, _MOST_INDEXES)
    return None if found is None else tuple(data for _, data in found)


def indexes(pin: Pin, read: Read) -> dict[str, bytes]:
    """The indexes by which a pin's reference and its root cover its image, by digest."""
    found: dict[str, bytes] = {}
    for outer in (digest_in(pin.reference), pin.root):
        found.update((_chain(outer, pin.digest, read, _MOST_INDEXES) or ()) if outer else ())
    return found


def _chain(outer: str, digest: str, read: Read, most: int) -> tuple[tuple[str, bytes], ...] | None:
    """Each index with the digest that names it."""
    if outer == digest:
        return ()
    data = read(outer) if most and digests.is_digest(outer) else None
    if data is None or not digests.is_of(outer, data):
        return None
    from bareboat_images.oci import documents  # here, because few images have an index

    try:
        listed = documents.manifest(data, name=outer).manifests or []
    except ImageError:
        return None
    inner = list(dict.fromkeys(each.digest for each in listed[:_MOST_LISTED]))
    if digest in inner:
        return ((outer, data),)
    for each in inner:
        if most > 1 and (rest := _chain(each, digest, read, most - 1)) is not None:
            return ((outer, data), *rest)
    return None
