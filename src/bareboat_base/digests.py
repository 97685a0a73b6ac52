"""Digests of content: `sha256:HEX` and `sha512:HEX`, the two algorithms that OCI registers.

Source: https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from hashlib import _Hash

#: Algorithm -> the number of its hexadecimal digits. Bareboat's own digests are of the first.
DIGITS = {"sha256": 64, "sha512": 128}
#: A digest, for use inside other expressions.
PATTERN = "(?:" + "|".join(f"{name}:[0-9a-f]{{{count}}}" for name, count in DIGITS.items()) + ")"
#: The form of a digest, for remedies.
EXAMPLE = "sha256: and 64 hexadecimal digits, or sha512: and 128"

_BEGINNING = r"(?:(sha256|sha512):)?([0-9a-f]{6,128})"
#: `sha256:` or `sha512:` and twelve digits.
_SHORT = 19


def is_digest(text: str) -> bool:
    """Whether the text is a digest of an algorithm that Bareboat computes."""
    return re.fullmatch(PATTERN, text) is not None


def split(digest: str) -> tuple[str, str]:
    """Algorithm and hexadecimal digits. Raises ValueError for other text."""
    if not is_digest(digest):
        raise ValueError(f"{quoted(digest, limit=100)} is not a digest")
    algorithm, _, digits = digest.partition(":")
    return algorithm, digits


def algorithm(digest: str) -> str:
    """The algorithm. Raises ValueError for other text."""
    return split(digest)[0]


def hexed(digest: str) -> str:
    """The hexadecimal digits. Raises ValueError for other text."""
    return split(digest)[1]


def place(digest: str) -> str:
    """The end of a path, `sha256/HEX`. Raises ValueError for other text."""
    return "/".join(split(digest))


def at(algorithm: str, digits: str) -> str | None:
    """The digest in a path `ALGORITHM/HEX`; None for other paths."""
    found = f"{algorithm}:{digits}"
    return found if is_digest(found) else None


def of_digits(digits: str) -> str | None:
    """The digest of hexadecimal digits, whose number gives the algorithm; None for other text."""
    return next((found for name in DIGITS if (found := at(name, digits)) is not None), None)


def hasher(algorithm: str = "sha256") -> _Hash:
    """A new hash. Raises KeyError for an algorithm that OCI does not register."""
    import hashlib  # here, because every start imports this module

    return {"sha256": hashlib.sha256, "sha512": hashlib.sha512}[algorithm]()


def hasher_for(digest: str) -> _Hash:
    """A new hash with a digest's algorithm. Raises ValueError for other text."""
    return hasher(algorithm(digest))


def written(hashed: _Hash) -> str:
    """The digest of the data in a hash."""
    return f"{hashed.name}:{hashed.hexdigest()}"


def of(data: bytes | bytearray, algorithm: str = "sha256") -> str:
    """The digest of bytes."""
    hashed = hasher(algorithm)
    hashed.update(data)
    return written(hashed)


def is_of(digest: str, data: bytes | bytearray) -> bool:
    """Whether the digest matches the bytes. False for text that is not a digest."""
    return is_digest(digest) and of(data, algorithm(digest)) == digest


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
    if read is None or len(read[2]) > DIGITS.get(read[1] or "sha512", 0):
        return None
    begun = ((each, *each.split(":", 1)) for each in known)
    return [each for each, name, digits in begun if read[1] in (None, name) and digits.startswith(read[2])]
