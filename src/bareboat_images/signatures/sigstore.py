"""Reads cosign's signatures, which are in the image's repository under a tag derived from the image's digest.

Source: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md. The tag `sha256-HEX.sig`
refers to a manifest whose layers are payloads, each with its signature in an annotation.
Signatures in sigstore's bundles (OCI referrers) are not read: they contain no image name, so no
`signedIdentity` could be checked.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat_base import digests
from bareboat_base.errors import ImageError, UsageError
from bareboat_images.oci import documents
from bareboat_images.oci.manifest import check_digest
from bareboat_images.oci.source import Descriptor, straight
from bareboat_images.signatures.payload import LARGEST_PAYLOAD

if TYPE_CHECKING:
    from bareboat_images.registry.client import RegistrySource

_LAYER = "application/vnd.dev.cosign.simplesigning.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"
#: An image has few signers; a longer list only costs time.
_MOST_SIGNATURES = 100
_LARGEST_SIGNATURE = 16 << 10
_LONGEST_TAG = 128


class Attached(Struct, frozen=True, kw_only=True):
    """A signature of the image `subject`, not verified."""

    subject: str
    payload: bytes
    signature: bytes


def attached(source: RegistrySource, subject: str) -> Iterator[Attached]:
    """The signatures of the image with this digest. Raises ImageError when the registry does not answer, or
    returns something other than signatures."""
    tag = subject.replace(":", "-") + ".sig"
    try:
        document = source.beside(tag)
    except ImageError:
        # Tags are no longer than this, and a registry may refuse a request for a longer one.
        if len(tag) <= _LONGEST_TAG:
            raise
        return
    if document is None:
        return
    layers = documents.manifest(document.data, name=f"the signatures of {source.name}").layers or []
    for layer in layers[:_MOST_SIGNATURES]:
        written = (layer.annotations or {}).get(_SIGNATURE, "")
        if layer.media_type != _LAYER or not written or len(written) > _LARGEST_SIGNATURE:
            continue
        try:
            signature = base64.b64decode(written, validate=True)
        except ValueError:
            continue
        yield Attached(subject=subject, payload=_payload(source, layer), signature=signature)


def _payload(source: RegistrySource, layer: documents.Descriptor) -> bytes:
    check_digest(layer.digest, f"the signatures of {source.name}")
    size = -1 if layer.size is None else layer.size
    if not 0 <= size <= LARGEST_PAYLOAD:
        raise ImageError(f"a signature of {source.name} claims to sign {size:,} bytes")
    descriptor = Descriptor(media_type=layer.media_type, digest=layer.digest, size=size)
    return b"".join(straight(source, descriptor, name=f"a signature of {source.name}"))


class PublicKeys:
    """The public keys of one requirement."""

    def __init__(self, files: list[tuple[str, bytes]]) -> None:
        """`files`: each key file's name and content, in PEM. Raises UsageError for an invalid public key, and
        if the library is not installed."""
        try:
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.serialization import load_pem_public_key
        except ImportError:
            raise missing_library("cryptography") from None
        self._keys = []
        for name, data in files:
            try:
                self._keys.append((name, load_pem_public_key(data)))
            except (ValueError, UnsupportedAlgorithm) as error:
                raise UsageError(
                    f"the signature policy names a key that is not a public key in PEM: {name}",
                    context=str(error),
                    remedy="cosign public-key --key KEY > FILE",
                ) from None

    def signer(self, payload: bytes, signature: bytes) -> tuple[str, str] | None:
        """The SHA-256 and file of the key that made the signature; None if it is none of these."""
        for name, key in self._keys:
            if _verifies(key, payload, signature):
                return fingerprint(key), name
        return None


def fingerprint(key: object) -> str:
    """The SHA-256 of a public key in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return digests.of(der)


def _verifies(key: object, payload: bytes, signature: bytes) -> bool:
    """Whether the key made the signature, with cosign's algorithms: SHA-256 for every curve."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        match key:
            case ec.EllipticCurvePublicKey():
                key.verify(signature, payload, ec.ECDSA(SHA256()))
            case ed25519.Ed25519PublicKey():
                key.verify(signature, payload)
            case rsa.RSAPublicKey():
                key.verify(signature, payload, padding.PKCS1v15(), SHA256())
            case _:
                return False
    except (InvalidSignature, ValueError):
        return False
    return True


def missing_library(name: str) -> UsageError:
    """The error for a policy that needs a library that is not installed: never accept the image."""
    return UsageError(
        f"the signature policy requires signatures, and the Python package {name} is not installed",
        remedy="pip install 'bareboat[signatures]'",
    )
