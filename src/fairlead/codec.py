"""Model types to canonical JSON and back, and the digests made from it."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec

from fairlead.errors import StoreError

T = TypeVar("T")


def to_json(value: Any) -> bytes:
    """Canonical JSON: keys sorted, no spaces, so that equal values have equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def to_pretty_json(value: Any) -> str:
    return msgspec.json.format(to_json(value), indent=2).decode()


def from_json(data: bytes, kind: type[T], *, what: str) -> T:
    """Read one `kind` back. Raises StoreError, naming `what`, when it is damaged or of another version."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{what} cannot be read: {error}", remedy="move it away; Fairlead writes a new one"
        ) from None


def digest(value: Any) -> str:
    """`sha256:` over the canonical JSON."""
    return "sha256:" + hashlib.sha256(to_json(value)).hexdigest()
