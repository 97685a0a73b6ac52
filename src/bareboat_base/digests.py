"""Digests of content: `sha256:HEX`.

Source: https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from hashlib import _Hash

#: The one algorithm: OCI registers another, which no builder uses.
ALGORITHM = "sha256"
#: A digest, for use inside other expressions.
PATTERN = "(?:sha256:[0-9a-f]{64})"
#: The form of a digest, for remedies.
EXAMPLE = "sha256: and 64 hexadecimal digits"

_BEGINNING = r"(?:sha256:)?([0-9a-f]{6,64})"
#: `sha256:` and twelve digits.
_SHORT = 19


def is_digest(text: str) -> bool:
    """Whether the text is a digest."""
    return re.fullmatch(PATTERN, text) is not None


def hexed(digest: str) -> str:
    """The hexadecimal digits. Raises ValueError for other text."""
    if not is_digest(digest):
        raise ValueError(f"{quoted(digest, limit=100)} is not a digest")
    return digest.partition(":")[2]


def place(digest: str) -> str:
    """The end of a path, `sha256/HEX`. Raises ValueError for other text."""
    return f"{ALGORITHM}/{hexed(digest)}"


def of_digits(digits: str) -> str | None:
    """The digest of hexadecimal digits; None for other text."""
    found = f"{ALGORITHM}:{digits}"
    return found if is_digest(found) else None


def hasher() -> _Hash:
    """A new hash."""
    import hashlib  # here, because every start imports this module

    return hashlib.sha256()


def written(hashed: _Hash) -> str:
    """The digest of the data in a hash."""
    return f"{ALGORITHM}:{hashed.hexdigest()}"


def of(data: bytes | bytearray) -> str:
    """The digest of bytes."""
    hashed = hasher()
    hashed.update(data)
    return written(hashed)


def is_of(digest: str, data: bytes | bytearray) -> bool:
    """Whether the digest matches the bytes. False for text that is not a digest."""
    return of(data) == digest


def short(digest: str) -> str:
    """The short form for messages: the algorithm and the first twelve digits."""
    return digest[:_SHORT]


def may_begin(text: str) -> bool:
    """Whether the text can be the beginning of a digest: at least six digits, with or without the
    algorithm."""
    return re.fullmatch(_BEGINNING, text) is not None


def beginning_with(text: str, known: Iterable[str]) -> list[str] | None:
    """The known digests that begin with the text: at least six digits, with or without the
    algorithm. None for text that cannot begin a digest."""
    read = re.fullmatch(_BEGINNING, text)
    return None if read is None else [each for each in known if each.startswith(f"{ALGORITHM}:{read[1]}")]
