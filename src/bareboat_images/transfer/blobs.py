"""Blobs of an image as in its manifest: layers in the compressed form that the image's digest covers.

The store keeps layers unpacked, and compressing a tar again does not give the same bytes. So a blob is one
that was kept when the image was pulled, or it is fetched again from the image's source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from bareboat_base.errors import ImageError
from bareboat_base.files import untrusted
from bareboat_images.oci.source import Descriptor, Source, straight, verified
from bareboat_images.store import Store

#: Yields the bytes of a blob from the beginning, at each call; verified at their end.
Make = Callable[[], Iterator[bytes]]

_CHUNK = 1 << 20


class Blobs:
    """The blobs of one image. `source` opens the source of the image, or returns None; it is called once, and
    only for a blob that the store does not keep."""

    def __init__(self, store: Store, source: Callable[[], Source | None]) -> None:
        self._store = store
        self._open_source = source
        self._looked = False
        self._source: Source | None = None
        #: Why the last requested blob could not be fetched.
        self.reason = ""

    def begin(self, descriptor: Descriptor, *, fetch: bool = True) -> Make | None:
        """A function that yields the blob; None if it is not available. Without `fetch` only a kept blob is
        used."""
        if self.is_kept(descriptor):
            return lambda: self._kept(descriptor)
        if not fetch or descriptor.size < 0 or (source := self._found()) is None:
            return None
        pieces = straight(source, descriptor, name=source.name)
        try:
            first = next(pieces, b"")
        except ImageError as error:
            self.reason = error.message
            return None
        begun = [itertools.chain((first,), pieces)]
        return lambda: begun.pop() if begun else straight(source, descriptor, name=source.name)

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
        with self._store.guarded(), untrusted.stream(self._store.blob(descriptor.digest)) as stream:
            chunks = iter(lambda: stream.read(_CHUNK), b"")
            yield from verified(chunks, descriptor, f"a blob of the store {self._store.root}")


def is_kept(store: Store, descriptor: Descriptor) -> bool:
    """Whether the store has the blob, with the right size."""
    try:
        return store.blob(descriptor.digest).lstat().st_size == descriptor.size
    except FileNotFoundError:
        return False
