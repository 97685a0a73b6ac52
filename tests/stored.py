"""Images in a store made of a few paths, for tests that need no more."""

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bareboat.model import Image, Layer
from bareboat_images.layers import layer as canonical
from bareboat_images.layers.unpack import unpack
from bareboat_images.model import StoredLayer
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits


def image_of(store: Store, *trees: dict[str, str | None]) -> Image:
    """Layers of these paths: text is a file's, `-> X` a link, None a folder."""
    layers = []
    for files in trees:
        with store.scratch() as scratch:
            tree = scratch / "made/tree"
            tree.mkdir(parents=True)
            for name, content in files.items():
                _make(tree / name, content)
            for path in (tree, *tree.rglob("*")):
                os.utime(path, (0, 0), follow_symlinks=False)
            diff_id, size = canonical.digest_tree(str(tree))
            facts: dict[str, Any] = {"diff_id": diff_id, "size_bytes": size, "unpacked_bytes": 1, "inodes": 9}
            store.publish_layer(scratch / "made", StoredLayer(**facts))
            layers.append(Layer(**facts))
    return Image(digest="sha256:" + "a" * 64, layers=tuple(layers))


def _make(path: Path, content: str | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir()
    elif content.startswith("-> "):
        path.symlink_to(content.removeprefix("-> "))
    else:
        path.write_text(content)


def foreign_tar(files: Mapping[str, bytes]) -> bytes:
    """A tar as no canonical one is: owners, times, an order of its own."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in sorted(files.items(), reverse=True):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uid, entry.uname = len(data), 1_700_000_000, 1234, "ada"
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def pulled_layer(store: Store, tar: bytes, *, recipe: bool = True) -> Layer:
    """A layer as a pull puts it into the store; `recipe`: with what it takes to write its tar again."""
    with store.scratch() as scratch:
        made = scratch / "made"
        (made / "tree").mkdir(parents=True)
        kept = made / "recipe" if recipe else None
        found = unpack(iter((tar,)), made / "tree", name="layer 1", limits=Limits(), recipe=kept)
        facts: dict[str, Any] = {
            "diff_id": found.diff_id, "size_bytes": found.tar_bytes, "inodes": found.inodes,
            "unpacked_bytes": found.unpacked_bytes,
        }  # fmt: skip
        store.publish_layer(made, StoredLayer(**facts, rebuildable=found.rebuildable))
    return Layer(**facts)
