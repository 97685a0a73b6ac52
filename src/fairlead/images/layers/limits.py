"""How much a layer may be, before it is taken for an attack."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.errors import ImageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one layer may unpack to. `max_ratio` holds after the first 100 MB.

    Deflate cannot do better than 1032:1 (https://zlib.net/zlib_tech.html), and reaches that on nothing but
    zeros: at 1000:1 a layer holds nothing. The other limits are beyond what any real image has.
    """

    max_unpacked_bytes: int = 4 << 40
    max_entries: int = 10_000_000
    max_ratio: float = 1000.0


def too_large(name: str, limits: Limits, entry: bytes = b"") -> ImageError:
    """The error for a layer that unpacks, or claims to unpack, to more bytes than allowed."""
    from fairlead.images.layers.tarstream import shown  # here, because limits are set without any tar

    allowed = limits.max_unpacked_bytes
    return ImageError(
        f"{name} unpacks to more than the {allowed:,} bytes allowed"
        + (f": the entry {shown(entry)} alone, or with those before it" if entry else ""),
        remedy=f"if you trust it: --max-unpacked {4 * allowed}",
    )
