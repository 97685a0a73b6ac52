"""Verifies OpenPGP signatures with Sequoia (the Python package pysequoia).

Sources: RFC 9580 (https://www.rfc-editor.org/rfc/rfc9580), and https://docs.sequoia-pgp.org
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line
from bareboat_images.signatures.sigstore import missing_library

#: A simple signature has about 1 kB, one in a SIF with several groups a few kB.
LARGEST_SIGNATURE = 1 << 20
_MOST_INFLATED = 4 << 20
_COMPRESSED = 8


class Signed(Struct, frozen=True):
    """The signed content, and the keys: the fingerprints of their certificates, and a name of each."""

    content: bytes
    by: tuple[tuple[str, str], ...]


class Keyring:
    """OpenPGP certificates."""

    def __init__(self, files: Sequence[tuple[str, bytes]]) -> None:
        """`files`: each file's name and content, binary or armored. Raises UsageError for an invalid keyring,
        and if the library is not installed."""
        try:
            from pysequoia import Cert
        except ImportError:
            raise missing_library("pysequoia") from None
        self._certificates: list[Any] = []
        for name, data in files:
            try:
                found = Cert.split_bytes(data)
            except Exception as error:  # the library raises its own and RuntimeError
                raise UsageError(
                    f"{name} is not a file of OpenPGP public keys",
                    context=one_line(str(error)),
                    remedy="gpg --export KEY > FILE",
                ) from None
            if not found:
                raise UsageError(f"{name} holds no OpenPGP public key", remedy="gpg --export KEY > FILE")
            self._certificates += found

    def has(self, fingerprint: str) -> bool:
        """Whether a key of this ring, valid now, has this fingerprint or key ID."""
        for each in self._certificates:
            try:
                gone = each.is_revoked or (each.expiration and each.expiration < datetime.now(UTC))
            except Exception:  # the library's policy rejects the certificate
                continue
            if not gone and each.fingerprint.upper().endswith(fingerprint.upper()):
                return True
        return False

    def verify(self, message: bytes) -> Signed:
        """The content of a signed message (with an inline or clear-text signature). Raises ValueError if no
        key of this ring has signed it, or the signature is invalid: a changed text, an expired or revoked
        key, a weak algorithm."""
        import pysequoia

        if len(message) > LARGEST_SIGNATURE:
            raise ValueError(f"it has {len(message):,} bytes, which no signature has")
        try:
            done = pysequoia.verify(bytes=inflated(message), store=lambda _keys: self._certificates)
        except Exception as error:
            raise ValueError(one_line(str(error))) from None
        signers = {each.certificate.upper() for each in done.valid_sigs}
        by = tuple(
            (cert.fingerprint.upper(), _name(cert))
            for cert in self._certificates
            if cert.fingerprint.upper() in signers
        )
        if not by or done.bytes is None:
            raise ValueError("none of the keys has signed it")
        return Signed(bytes(done.bytes), tuple(dict.fromkeys(by)))


def _name(certificate: Any) -> str:
    try:
        names = [one_line(str(each)) for each in certificate.user_ids]
    except Exception:  # a user ID that is not text
        return ""
    return names[0] if names else ""


def inflated(message: bytes) -> bytes:
    """The message without gpg's compression, with a limit, so that a few bytes cannot become gigabytes in the
    library. Raises ValueError."""
    if not message or not message[0] & 0x80 or _tag(message) != _COMPRESSED:
        return message
    body = _body(message)
    if not body:
        raise ValueError("its compressed packet is empty")
    kind, data = body[0], body[1:]
    try:
        match kind:
            case 0:
                plain = data
            case 1:
                plain = zlib.decompressobj(-15).decompress(data, _MOST_INFLATED + 1)
            case 2:
                plain = zlib.decompressobj().decompress(data, _MOST_INFLATED + 1)
            case 3:
                plain = bz2.BZ2Decompressor().decompress(data, _MOST_INFLATED + 1)
            case _:
                raise ValueError(f"its compression {kind} is unknown")
    except (zlib.error, OSError) as error:
        raise ValueError(f"its compressed packet is damaged: {error}") from None
    if len(plain) > _MOST_INFLATED:
        raise ValueError(f"it inflates to more than {_MOST_INFLATED:,} bytes")
    if not plain or not plain[0] & 0x80 or _tag(plain) == _COMPRESSED:
        raise ValueError("its compressed packet holds no signed message")
    return plain


def _tag(message: bytes) -> int:
    return message[0] & 0x3F if message[0] & 0x40 else (message[0] >> 2) & 0x0F


def _body(message: bytes) -> bytes:
    """The body of the first packet, which must be the whole message."""
    first = message[0]
    if not first & 0x40:
        kind = first & 3
        if kind == 3:
            return message[1:]
        width = 1 << kind
        size, start = int.from_bytes(message[1 : 1 + width]), 1 + width
        return message[start : start + size]
    body, at = b"", 1
    while at < len(message):
        octet = message[at]
        if octet < 192:
            return body + message[at + 1 : at + 1 + octet]
        if octet < 224:
            size = ((octet - 192) << 8) + message[at + 1] + 192 if at + 1 < len(message) else 0
            return body + message[at + 2 : at + 2 + size]
        if octet == 255:
            return body + message[at + 5 : at + 5 + int.from_bytes(message[at + 1 : at + 5])]
        size = 1 << (octet & 0x1F)
        body += message[at + 1 : at + 1 + size]
        at += 1 + size
    return body
