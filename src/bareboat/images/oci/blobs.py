"""Blobs of an image as its manifest names them: layers in the compressed form that the image's digest covers.

The store keeps layers unpacked, and nobody can compress a tar again into the same bytes. So a blob is one
that was kept when the image was pulled, or it is fetched again from where the image came from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from bareboat import digests
from bareboat.errors import ImageError
from bareboat.images.oci.source import Descriptor, Source
from bareboat.store import Store

#: Gives the bytes of a blob from the beginning, each time it is called; verified when they end.
Make = Callable[[], Iterator[bytes]]

_CHUNK = 1 << 20


def no_source() -> Source | None:
    """For an image that is not to be fetched again."""
    return None


class Blobs:
    """Where the blobs of one image are. `source` opens the place that the image came from, or gives None; it
    is called once, and only for a blob that the store does not keep."""

    def __init__(self, store: Store, source: Callable[[], Source | None]) -> None:
        self._store = store
        self._open_source = source
        self._looked = False
        self._source: Source | None = None
        #: Why the last blob that was asked for could not be fetched.
        self.reason = ""

    def begin(self, descriptor: Descriptor, *, fetch: bool = True) -> Make | None:
        """What gives the blob; None where it is not to be had. Without `fetch` only a kept one is given."""
        if self.is_kept(descriptor):
            return lambda: self._kept(descriptor)
        if not fetch or descriptor.size < 0 or (source := self._found()) is None:
            return None
        pieces = _copied(source, descriptor)
        try:
            first = next(pieces, b"")
        except ImageError as error:
            self.reason = error.message
            return None
        begun = [itertools.chain((first,), pieces)]
        return lambda: begun.pop() if begun else _copied(source, descriptor)

    def is_kept(self, descriptor: Descriptor) -> bool:
        return is_kept(self._store, descriptor)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def _found(self) -> Source | None:
        if not self._looked:
            self._looked = True
            try:
                self._source = self._open_source()
            except ImageError as error:
                self.reason = error.message
        return self._source

    def _kept(self, descriptor: Descriptor) -> Iterator[bytes]:
        with self._store.guarded(), open(self._store.blob(descriptor.digest), "rb") as stream:
            yield from _verified(
                iter(lambda: stream.read(_CHUNK), b""), descriptor, f"the store {self._store.root}"
            )


def is_kept(store: Store, descriptor: Descriptor) -> bool:
    """Whether the store has the blob, in its size."""
    try:
        return store.blob(descriptor.digest).stat().st_size == descriptor.size
    except FileNotFoundError:
        return False


def _copied(source: Source, descriptor: Descriptor) -> Iterator[bytes]:
    with source.blob(descriptor) as blob:
        buffer = memoryview(bytearray(_CHUNK))

        def pieces() -> Iterator[bytes]:
            while (got := blob.readinto(buffer)) > 0:
                yield bytes(buffer[:got])

        yield from _verified(pieces(), descriptor, source.name)


def _verified(pieces: Iterator[bytes], descriptor: Descriptor, name: str) -> Iterator[bytes]:
    """The same pieces, never more than the descriptor announces. Raises ImageError after the last of them for
    other bytes than its digest is of."""
    hashed = digests.hasher_for(descriptor.digest)
    done = 0
    for piece in pieces:
        done += len(piece)
        if done > descriptor.size:
            break
        hashed.update(piece)
        yield piece
    if done != descriptor.size or digests.written(hashed) != descriptor.digest:
        raise ImageError(
            f"{name} returned content that does not match the digest {descriptor.digest}",
            remedy="try again; if the error persists, its copy is damaged",
        )
