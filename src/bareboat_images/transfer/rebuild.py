"""Rebuilds a layer's tar from its tree in the store, and checks it against its digest during writing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from bareboat_base import digests
from bareboat_base.errors import BareboatError, StoreError
from bareboat_images.layers import layer as canonical
from bareboat_images.model import Layer
from bareboat_images.store import Store

_AHEAD = 16
#: Tars of many small files come in pieces of half a kilobyte; queuing each costs more than making it.
_PIECE_BYTES = 1 << 18


def write_tar(store: Store, layer: Layer, write: Callable[[bytes], object], *, remedy: str) -> None:
    """Write the tar that matches the layer's digest. Raises StoreError if the tree has changed, or never
    sufficed to rebuild the tar; exceptions of `write` pass through."""
    hashed = digests.hasher()
    size = 0
    refused: Exception | None = None

    def put(data: bytes) -> None:
        nonlocal size, refused
        hashed.update(data)
        size += len(data)
        try:
            write(data)
        except Exception as error:
            refused = error
            raise

    tree, recipe = store.layer(layer.diff_id), store.recipe(layer.diff_id)
    what = f"layer {layer.diff_id} ({layer.comment or 'of an image'})"
    damage = ""
    try:
        if recipe.exists():
            from bareboat_images.layers.tar_split import rebuild

            rebuild(tree, recipe, put)
        else:
            canonical.write_tar(str(tree), put)
    except (OSError, ValueError, BareboatError) as error:
        if error is refused:
            raise
        damage = f"{error}"
    found = digests.written(hashed)
    if not damage and found == layer.diff_id and size == layer.size_bytes:
        return
    if not recipe.exists() and not _is_rebuildable(store, layer):
        raise StoreError(
            f"{what} cannot be written as an archive again: its tar has data that is not in its files",
            remedy="copy the image from where it came from, with skopeo or podman",
        )
    raise StoreError(
        f"{what} was changed in the store", context=damage or f"it is now {found}", remedy=remedy
    )


def _is_rebuildable(store: Store, layer: Layer) -> bool:
    try:
        return store.stored_layer(layer.diff_id).rebuildable
    except (StoreError, OSError):  # a captured layer has no metadata file; its tar is the canonical one
        return True


def chunks(store: Store, layer: Layer, *, remedy: str) -> Iterator[bytes]:
    """The same tar, in pieces: a thread creates it, a little ahead of the reader."""
    ready: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    gone = threading.Event()
    pending: list[bytes] = []
    pending_bytes = 0

    def hand_over(piece: bytes | BaseException | None) -> None:
        while True:
            if gone.is_set():
                raise _Gone
            try:
                ready.put(piece, timeout=0.1)
            except queue.Full:
                continue
            return

    def put(piece: bytes) -> None:
        nonlocal pending_bytes
        pending.append(piece)
        pending_bytes += len(piece)
        if pending_bytes >= _PIECE_BYTES:
            hand_over(b"".join(pending))
            pending.clear()
            pending_bytes = 0

    def make() -> None:
        try:
            try:
                write_tar(store, layer, put, remedy=remedy)
                hand_over(b"".join(pending))
                hand_over(None)
            except Exception as error:
                hand_over(error)
        except _Gone:
            return

    maker = threading.Thread(target=make, name="rebuild")
    maker.start()
    try:
        while (piece := ready.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            if piece:
                yield piece
    finally:
        gone.set()
        maker.join()


class _Gone(BaseException):
    """The reader has stopped reading."""
