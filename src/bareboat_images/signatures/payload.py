"""Parses the signed content of an image's signature: a digest and a name, as JSON.

Sources: containers-signature(5),
https://github.com/containers/image/blob/main/docs/containers-signature.5.md,
and cosign's https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
"""

from __future__ import annotations

from msgspec import Struct

from bareboat_base import digests
from bareboat_images.signatures.policy import fields, strict_json

SIMPLE_SIGNING = "atomic container signature"
COSIGN = "cosign container image signature"
LARGEST_PAYLOAD = 1 << 20


class Payload(Struct, frozen=True):
    """The signer's statement: the image with this digest has this name."""

    digest: str
    name: str


def read_payload(data: bytes, *, kind: str) -> Payload:
    """Parse a payload of a kind. Raises ValueError for any deviation from the format."""
    if len(data) > LARGEST_PAYLOAD:
        raise ValueError(f"the payload has {len(data):,} bytes")
    try:
        read = fields(strict_json(data), where="the payload", needed=("critical",), optional=("optional",))
        critical = fields(read["critical"], where="critical", needed=("type", "image", "identity"))
        image = fields(critical["image"], where="critical.image", needed=("docker-manifest-digest",))
        identity = fields(critical["identity"], where="critical.identity", needed=("docker-reference",))
    except RecursionError:
        raise ValueError("the payload is nested too deep") from None
    if critical["type"] != kind:
        raise ValueError(f"it is a {critical['type']!r}, not a {kind!r}")
    digest, name = image["docker-manifest-digest"], identity["docker-reference"]
    if not isinstance(digest, str) or not digests.is_digest(digest):
        raise ValueError("critical.image has no SHA-256 digest")
    if not isinstance(name, str):
        raise ValueError("critical.identity has no name")
    return Payload(digest, name)
