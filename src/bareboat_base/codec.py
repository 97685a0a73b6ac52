"""Model types to canonical JSON and back, and their digests."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

from bareboat_base.errors import StoreError, UsageError

T = TypeVar("T")

#: msgspec examines a type when it first decodes one. If two threads do so at once, the second may use what
#: the first has not finished, and the process ends with a segmentation fault.
_examining = threading.RLock()


def decode(data: bytes | str, kind: type[T]) -> T:
    """Parse JSON as one `kind`. Raises msgspec.DecodeError, ValueError, RecursionError, UsageError."""
    with _examining:
        return msgspec.json.decode(data, type=kind)


def convert(value: Any, kind: type[T]) -> T:
    """Make one `kind` of plain values. Raises msgspec.ValidationError, RecursionError, UsageError."""
    with _examining:
        return msgspec.convert(value, kind)


def to_json(value: Any) -> bytes:
    """Canonical JSON: keys sorted, no spaces, so that equal values have equal bytes."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:
        import json

        # Python holds bytes that are not UTF-8 as lone surrogates, which json escapes.
        builtins = msgspec.to_builtins(value)
        return json.dumps(builtins, sort_keys=True, separators=(",", ":")).encode()


def to_pretty_json(value: Any) -> str:
    data = to_json(value)
    try:
        return msgspec.json.format(data, indent=2).decode()
    except msgspec.DecodeError:
        import json

        return json.dumps(json.loads(data), indent=2)


def from_json(data: bytes, kind: type[T], *, what: str, remedy: str = "restore it from a backup") -> T:
    """Parse one `kind`. Raises StoreError, naming `what`, for damaged data or another version.

    `remedy`: how to obtain the data again, which only the caller knows.
    """
    try:
        if b"\\udc" in data:  # written by to_json(); msgspec rejects lone surrogates
            import json

            return convert(json.loads(data), kind)
        return decode(data, kind)
    except (msgspec.DecodeError, ValueError, RecursionError, UsageError) as error:
        raise StoreError(f"{what} cannot be read: {fault(error)}", remedy=remedy) from None


def fault(error: Exception) -> str:
    """Why JSON does not match a type. Keeps only the place from msgspec's text: " - at `$.layers[0]`"."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UsageError):
        return error.message
    if isinstance(error, msgspec.ValidationError):
        place = str(error).partition("`$")[2].partition("`")[0].lstrip(".")
        return f"{place or 'its content'} is missing or has the wrong type"
    return "it is not valid JSON, or incomplete"


def digest(value: Any) -> str:
    """`sha256:` over the canonical JSON."""
    import hashlib

    return "sha256:" + hashlib.sha256(to_json(value)).hexdigest()
