"""Pushes an image of the store to a registry, with as few bytes as possible.

Blobs that the registry has are not sent. Missing blobs are fetched from the image's origin, so that the
digest does not change. Only if that fails are layers written again from the store: the same files, compressed
again, under a new digest, which is reported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from bareboat_base import digests
from bareboat_base.errors import ImageError
from bareboat_images.model import Image, Layer
from bareboat_images.oci import manifest
from bareboat_images.oci.reference import Reference
from bareboat_images.oci.source import Descriptor, Document, Source
from bareboat_images.progress import Progress
from bareboat_images.store import Store
from bareboat_images.transfer import rebuild
from bareboat_images.transfer.blobs import Blobs

_CHUNK = 1 << 20


class Target(Protocol):
    """A repository that receives an image: `bareboat_images.registry.pusher.Pusher`, or a test double."""

    def has_blob(self, digest: str) -> bool: ...

    def upload(self, digest: str, size: int, chunks: Iterable[bytes]) -> None: ...

    def put_manifest(self, reference: str, data: bytes, media_type: str) -> str: ...


class Pushed(Struct, frozen=True, kw_only=True):
    """The result of a push, in numbers of blobs and bytes sent. `digest`: the one in the registry."""

    digest: str
    same_digest: bool
    there: int
    sent: int
    sent_bytes: int


class _Push:
    def __init__(
        self,
        store: Store,
        image: Image,
        target: Target,
        source: Callable[[], Source | None],
        progress: Progress,
    ) -> None:
        self.store = store
        self.image = image
        self.target = target
        self.blobs = Blobs(store, source)
        self.progress = progress
        self.there = self.sent = self.sent_bytes = 0

    def blob(self, descriptor: Descriptor, layer: Layer) -> bool:
        """Add one blob, in the form that the manifest names, to the repository; whether that succeeded."""
        if self.target.has_blob(descriptor.digest):
            self.there += 1
            return True
        if layer.diff_id == descriptor.digest:
            remedy = self.store.how_to_get(self.image)
            self.send(
                descriptor.digest, layer.size_bytes, lambda: rebuild.chunks(self.store, layer, remedy=remedy)
            )
            return True
        make = self.blobs.begin(descriptor)
        if make is None:
            return False
        self.send(descriptor.digest, descriptor.size, make)
        return True

    def send(self, digest: str, size: int, make: Callable[[], Iterator[bytes]]) -> None:
        """Send a blob; `make` yields its bytes from the beginning, at each call."""

        def tell(done: int) -> None:
            self.progress(f"sending {digests.short(digest)}", done, size)

        self.target.upload(digest, size, _Content(make, tell))
        self.sent += 1
        self.sent_bytes += size


class _Content:
    """The bytes of a blob, from the beginning at each iteration: a failed upload starts again."""

    def __init__(self, make: Callable[[], Iterator[bytes]], tell: Callable[[int], None]) -> None:
        self._make = make
        self._tell = tell

    def __iter__(self) -> Iterator[bytes]:
        done = 0
        for chunk in self._make():
            yield chunk
            done += len(chunk)
            self._tell(done)


def push(
    image: Image,
    store: Store,
    target: Target,
    to: Reference,
    *,
    source: Callable[[], Source | None],
    progress: Progress = lambda *_: None,
) -> Pushed:
    """Push the image. `source` opens where it was pulled from, or returns None.

    Raises ImageError when the registry refuses, StoreError when a layer was changed in the store.
    """
    _check_goal(to, image.digest)
    data, read, config = store.manifest_data(image), store.manifest(image), store.config(image)
    media_type = read.media_type
    work = _Push(store, image, target, source, progress)
    _small(work, read.config.digest, config)
    try:
        missing = [
            number
            for number, (descriptor, layer) in enumerate(zip(read.layers, image.layers, strict=True))
            if not work.blob(descriptor, layer)
        ]
    finally:
        work.blobs.close()
    if missing:
        data = _with_new_layers(work, image, read, config, missing)
        media_type = manifest.OCI_MANIFEST
        _check_goal(to, digests.of(data))
    digest = target.put_manifest(to.wanted, data, media_type)
    return Pushed(
        digest=digest,
        same_digest=digest == image.digest,
        there=work.there,
        sent=work.sent,
        sent_bytes=work.sent_bytes,
    )


def _check_goal(to: Reference, digest: str) -> None:
    if to.digest is not None and to.digest != digest:
        raise ImageError(
            f"the image cannot be pushed as {to}: its digest would be {digest}",
            remedy="push it to a tag; the registry answers with its digest",
        )


def _small(work: _Push, digest: str, data: bytes) -> None:
    """Send the config, which the store has unchanged."""
    if work.target.has_blob(digest):
        work.there += 1
    else:
        work.send(digest, len(data), lambda: iter((data,)))


def _with_new_layers(
    work: _Push, image: Image, read: manifest.Manifest, config: bytes, missing: list[int]
) -> bytes:
    """Send the missing layers, compressed again; return the manifest that names them."""
    described = []
    for number, (descriptor, layer) in enumerate(zip(read.layers, image.layers, strict=True)):
        if number in missing:
            with work.store.scratch() as scratch:
                digest, size = _compress(work, layer, scratch / "layer.tar.gz")
                if work.target.has_blob(digest):
                    work.there += 1
                else:
                    work.send(digest, size, functools.partial(_pieces, scratch / "layer.tar.gz"))
            described.append(Descriptor(media_type=manifest.OCI_LAYER + "+gzip", digest=digest, size=size))
        else:
            media_type = descriptor.media_type.replace(
                "application/vnd.docker.image.rootfs.diff.tar", manifest.OCI_LAYER
            ).replace(".tar.gzip", ".tar+gzip")
            described.append(msgspec.structs.replace(descriptor, media_type=media_type))
    named = Document(data=config, media_type=manifest.OCI_CONFIG, digest=read.config.digest)
    return manifest.make_manifest(named, described).data


def _compress(work: _Push, layer: Layer, path: Path) -> tuple[str, int]:
    """Write the layer's tar as a gzip file without name and time, so that equal trees give equal bytes."""
    from isal import isal_zlib

    hashed = digests.hasher()
    with work.store.guarded(), open(path, "wb") as stream:
        squeeze = isal_zlib.compressobj(level=2, wbits=31)
        done = 0

        def put(data: bytes) -> None:
            hashed.update(data)
            stream.write(data)

        for piece in rebuild.chunks(work.store, layer, remedy=work.store.how_to_get(work.image)):
            put(squeeze.compress(piece))
            done += len(piece)
            work.progress("compressing a layer", done, layer.size_bytes)
        put(squeeze.flush())
        return digests.written(hashed), stream.tell()


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while piece := stream.read(_CHUNK):
            yield piece
