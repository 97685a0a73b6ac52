"""Images in a store made of a few paths, for tests that need no more."""

import os
from pathlib import Path
from typing import Any

from bareboat.model import Image, Layer
from bareboat_images.layers import layer as canonical
from bareboat_images.model import StoredLayer
from bareboat_images.store import Store


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
