"""The trees and files of an image in a store, as jobs use them."""

from __future__ import annotations

from bareboat.model import Rootfs
from bareboat_images.model import Image
from bareboat_images.store import Store


def rootfs_of(store: Store, image: Image) -> Rootfs:
    """The paths of the image's layers, bottom first, its flat tree and its packed files."""
    return Rootfs(
        layers={layer.diff_id: str(store.layer(layer.diff_id)) for layer in image.layers},
        flat=str(store.flat(image.digest)),
        relinked=str(store.relinked(image.digest)),
        packed={kind: str(path) for kind, path in store.packed_files(image.digest).items()},
    )
