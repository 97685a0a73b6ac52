"""Images that a store has as one file, a SIF, a squashfs or a tar."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bareboat_base import codec
from bareboat_base.errors import StoreError
from bareboat_base.files import untrusted
from bareboat_images.layers import layer
from bareboat_images.store import FILE_KINDS, Store
from bareboat_images.tar import writer


class PackedFile(Struct, frozen=True, kw_only=True):
    """An image packed into one file, with these facts stored next to it. `sha256`: of the file, in
    hexadecimal. `places`: mount points created in it -> whether it is a directory."""

    kind: str
    size_bytes: int
    sha256: str
    places: dict[str, bool]


def files(store: Store, digest: str) -> list[Path]:
    """All packed files of an image, including those for some jobs and incomplete ones."""
    top = store.packed(digest, "sif").parent
    paths = [folder / f"image.{kind}" for folder in (top, *top.glob("own/*")) for kind in FILE_KINDS]
    return [path for path in paths if path.exists() and facts_of(path).exists()]


def about(path: Path) -> PackedFile | None:
    """Facts about a packed file; None if it does not exist or is incomplete."""
    try:
        found = codec.from_json(untrusted.read_bytes(facts_of(path)), PackedFile, what=str(path))
        return found if path.stat().st_size == found.size_bytes else None
    except (OSError, StoreError):
        return None


def facts_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def sha256(path: Path) -> str:
    with open(untrusted.open_regular(path), "rb") as stream:
        import hashlib

        return hashlib.file_digest(stream, "sha256").hexdigest()


def publish(made: Path, path: Path, *, places: dict[str, bool], digest: str = "") -> None:
    """Move a complete file to its place in the store. Its facts follow, without which it does not count.
    `digest`: its SHA-256, if known."""
    facts = PackedFile(
        kind=path.name.removeprefix("image."),
        size_bytes=made.stat().st_size,
        sha256=digest or sha256(made),
        places=places,
    )
    beside = made.with_name("facts")
    beside.write_bytes(codec.to_json(facts))
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, path)
    os.replace(beside, facts_of(path))


def write_tree(tree: str, write: Callable[[bytes], object]) -> None:
    """Write a tree as a tar without owners; skip everything except files, directories and links. Raises
    EOFError for a file that becomes shorter."""
    rules = writer.Rules(
        mode=lambda state: stat.S_IMODE(state.st_mode),
        mtime=lambda state: max(int(state.st_mtime), 0),
        links=lambda _: True,  # st_nlink is not used: each file also has a name in its layer
        other=lambda _: None,
        empties_unreadable=True,  # nobody can read it in a container either
    )
    for data in writer.of_tree(tree, [(".", os.lstat(tree)), *layer.entries(tree)], rules):
        write(data)
