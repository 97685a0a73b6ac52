"""Model types to canonical JSON and back, and the digests made from it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeVar

import msgspec

from bareboat.errors import StoreError, UsageError

T = TypeVar("T")


def to_json(value: Any) -> bytes:
    """Canonical JSON: keys sorted, no spaces, so that equal values have equal bytes."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:
        # An argument or a path that is not UTF-8, which Python holds as lone surrogates. json escapes them.
        builtins = msgspec.to_builtins(value)
        return json.dumps(builtins, sort_keys=True, separators=(",", ":")).encode()


def to_pretty_json(value: Any) -> str:
    data = to_json(value)
    try:
        return msgspec.json.format(data, indent=2).decode()
    except msgspec.DecodeError:
        return json.dumps(json.loads(data), indent=2)


def from_json(data: bytes, kind: type[T], *, what: str, remedy: str = "restore it from a backup") -> T:
    """Read one `kind` back. Raises StoreError, naming `what`, when it is damaged or of another version.

    `remedy`: how to get it again, if that is possible; only the caller knows.
    """
    try:
        if b"\\udc" in data:  # as to_json() wrote it; msgspec takes no lone surrogates
            return msgspec.convert(json.loads(data), kind)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError, UsageError) as error:
        raise StoreError(f"{what} cannot be read: {fault(error)}", remedy=remedy) from None


def fault(error: Exception) -> str:
    """Why JSON cannot be read as a type. Of msgspec's own words only the place: " - at `$.layers[0]`"."""
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    if isinstance(error, UsageError):
        return error.message
    if isinstance(error, msgspec.ValidationError):
        place = str(error).partition("`$")[2].partition("`")[0].lstrip(".")
        return f"{place or 'its content'} is missing or of another kind than it should be"
    return "it is not JSON, or not all of it"


def digest(value: Any) -> str:
    """`sha256:` over the canonical JSON."""
    return "sha256:" + hashlib.sha256(to_json(value)).hexdigest()
