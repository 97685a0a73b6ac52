"""Images that a store has as one file, a SIF, a squashfs or a tar."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import Struct

from bareboat_base import codec
from bareboat_base.errors import StoreError
from bareboat_base.files import untrusted
from bareboat_images.store import FILE_KINDS, Store


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
        return hashlib.file_digest(stream, "sha256").hexdigest()
