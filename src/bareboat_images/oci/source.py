"""The interface of everything that contains images: registries, layout directories, archive files.

Documents (indexes, manifests, configs) are small and returned whole, verified. Blobs are streams of bytes
that are *not* verified: whoever reads one to its end checks the digest, once, in one place (`pull`).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import Struct, field

from bareboat_base import digests
from bareboat_base.errors import ImageError

#: Documents larger than this are refused; registries themselves refuse manifests of more than 4 MiB.
LARGEST_DOCUMENT = 4 * 2**20
_CHUNK = _SKIPPED_BYTES = 1 << 20


class Descriptor(Struct, frozen=True, kw_only=True):
    """A reference to content, as in OCI. `size` in bytes; -1 if unknown, in a docker-archive."""

    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = field(default_factory=dict)


class Document(Struct, frozen=True, kw_only=True):
    """An index, a manifest or a config: its bytes as received, media type and digest."""

    data: bytes
    media_type: str
    digest: str


class Blob(Protocol):
    """An open blob, read from front to back."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer with the bytes available; 0 at the end. Raises ImageError when the source fails
        permanently."""
        ...


class Joined(io.RawIOBase):
    """Presents pieces of any size as a blob, or as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        filled = 0
        while filled < len(buffer):
            if not self._rest:
                self._rest = memoryview(next(self._pieces, b""))
                if not self._rest:
                    if self._ended():
                        break
                    continue
            part = self._rest[: len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            self._rest = self._rest[len(part) :]
            filled += len(part)
        return filled

    def skip(self, size: int) -> None:
        scrap = memoryview(bytearray(_SKIPPED_BYTES))
        while size > 0 and (got := self.readinto(scrap[: min(size, _SKIPPED_BYTES)])):
            size -= got

    def _ended(self) -> bool:
        """Whether the pieces have ended: an empty piece, such as padding of length 0, is not the end."""
        piece = next(self._pieces, None)
        if piece is None:
            return True
        self._rest = memoryview(piece)
        return False


class Source(Protocol):
    """One image in one place."""

    #: Its name in messages, such as `docker.io/library/debian:12` or `oci-archive:image.tar`.
    name: str
    #: Whether the bytes are on this machine already, so that spooling is useless.
    local: bool
    #: The image's names in an archive.
    called: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the image loses in the transfer, known once its blobs have been read."""
        ...

    def document(self, digest: str | None = None) -> Document:
        """The root document, index or manifest; or the document with a digest. Verified.

        Raises ImageError if it does not exist, is too large, or does not match its digest.
        """
        ...

    def blob(self, descriptor: Descriptor, offset: int = 0) -> contextlib.AbstractContextManager[Blob]:
        """Open a blob at an offset. Raises ImageError."""
        ...

    def held(self, descriptor: Descriptor, diff_id: str) -> Descriptor:
        """What to read for a layer whose tar has the digest `diff_id`: the manifest's blob, or the tar where
        a bundle has only that. The config in the manifest has the diff-id, so the image's digest covers the
        tar as well."""
        ...

    def close(self) -> None:
        """Close files and connections; a read that blocks in another thread ends with an ImageError."""
        ...


def straight(
    source: Source, descriptor: Descriptor, count: Callable[[int], None] = lambda _: None, *, name: str
) -> Iterator[bytes]:
    """The chunks of a blob, as `verified` yields them; `count` gets their sizes."""

    def chunks(blob: Blob) -> Iterator[bytes]:
        buffer = memoryview(bytearray(_CHUNK))
        while (got := blob.readinto(buffer)) > 0:
            yield bytes(buffer[:got])
            count(got)

    with source.blob(descriptor) as blob:
        yield from verified(chunks(blob), descriptor, name)


def verified(chunks: Iterator[bytes], descriptor: Descriptor, name: str) -> Iterator[bytes]:
    """The same chunks, never more than the descriptor's size. Raises ImageError after the last one if they do
    not match the digest."""
    hashed = digests.hasher()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if 0 <= descriptor.size < size:
            break
        hashed.update(chunk)
        yield chunk
    if digests.written(hashed) != descriptor.digest or descriptor.size not in (-1, size):
        raise ImageError(
            f"{name} does not match its digest",
            context=f"expected {expected(descriptor)}; found {size:,} bytes",
            remedy="it is damaged, or was changed meanwhile; make or copy it again",
        )


def expected(descriptor: Descriptor) -> str:
    """The digest and the size of content, for messages."""
    return descriptor.digest + (f", {descriptor.size:,} bytes" if descriptor.size >= 0 else "")


class LocalSource:
    """Base of the sources on this machine: nothing to close, and by default nothing is lost."""

    local = True
    name: str
    called: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def held(self, descriptor: Descriptor, diff_id: str) -> Descriptor:  # noqa: ARG002
        return descriptor

    def close(self) -> None:
        """Nothing is held open between calls."""

    def one_of(self, documents: Iterable[Document], digest: str | None) -> Document:
        """The document with this digest of those that the source has made; None: the first."""
        for each in documents:
            if digest in (None, each.digest):
                return each
        raise ImageError(f"{self.name} has no document {digest}")
