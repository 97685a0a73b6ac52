"""Limits on the size of a layer: beyond them it is treated as an attack."""

from __future__ import annotations

import os

from msgspec import Struct

from bareboat_base.errors import ImageError

#: The highest ratio of uncompressed to compressed size, checked after the first 100 MB.
MAX_RATIO = 1000.0
RATIO_FROM_BYTES = 100_000_000
_BLOCK = 512


class Limits(Struct, frozen=True, kw_only=True):
    """What one layer may unpack to. `max_ratio` applies after the first 100 MB.

    Deflate reaches at most 1032:1 (https://zlib.net/zlib_tech.html), and only for zeros: at 1000:1 a layer
    has no content. The other limits exceed any real image.
    """

    max_unpacked_bytes: int = 4 << 40
    max_entries: int = 10_000_000
    max_ratio: float = MAX_RATIO


def is_mostly_holes(state: os.stat_result) -> bool:
    """Whether a file has so many holes, which are zeros in a layer, that its layer would be refused."""
    return state.st_size > max(RATIO_FROM_BYTES, MAX_RATIO * state.st_blocks * _BLOCK)


def too_many(name: str, limits: Limits) -> ImageError:
    """The error for a layer with more entries than allowed, including directories that no entry names."""
    return ImageError(
        f"{name} has more than the {limits.max_entries:,} entries allowed",
        remedy=f"if you trust it: --max-entries {10 * limits.max_entries}",
    )


def bomb(name: str, max_ratio: float, packed_bytes: int, made_bytes: int) -> ImageError:
    """The error for compressed data that expands beyond the allowed ratio."""
    return ImageError(
        f"{name} is a decompression bomb: {packed_bytes / 1e6:,.1f} MB have become "
        f"{made_bytes / 1e6:,.0f} MB so far",
        remedy=f"if you trust it: --max-ratio {10 * max_ratio:.0f}",
    )


def too_large(name: str, limits: Limits, entry: bytes = b"") -> ImageError:
    """The error for a layer that unpacks, or claims to unpack, to more bytes than allowed."""
    from bareboat_base.printable import file_name

    allowed = limits.max_unpacked_bytes
    return ImageError(
        f"{name} unpacks to more than the {allowed:,} bytes allowed"
        + (f": the entry {file_name(entry)} alone, or with those before it" if entry else ""),
        remedy=f"if you trust it: --max-unpacked {4 * allowed}",
    )
