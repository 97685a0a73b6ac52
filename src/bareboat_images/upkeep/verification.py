"""Verifies images (`image verify`): compares all bytes with the digests that name them."""

from __future__ import annotations

import functools
import os
import shlex
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bareboat_base import digests
from bareboat_base.errors import BareboatError, StoreError
from bareboat_images.formats import packed
from bareboat_images.layers import layer as canonical
from bareboat_images.model import Image, Layer
from bareboat_images.progress import Progress
from bareboat_images.store import Store
from bareboat_images.upkeep import contents


class State(StrEnum):
    """The result of a check of a layer."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    MISSING = "missing"
    UNKNOWN = "cannot be verified"


class LayerCheck(Struct, frozen=True, kw_only=True):
    """One layer: the result, and its changed files, if they can be identified."""

    diff_id: str
    state: State
    detail: str = ""
    files: tuple[str, ...] = ()


class Verified(Struct, frozen=True, kw_only=True):
    """One image: its layers, its damaged or missing manifest and config (`documents`), and its changed packed
    files."""

    digest: str
    layers: tuple[LayerCheck, ...]
    documents: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def ok(self) -> bool:
        bad = (State.DAMAGED, State.MISSING)
        return not self.documents and not self.packed and not any(layer.state in bad for layer in self.layers)


def verify(store: Store, image: Image, *, progress: Progress = lambda *_: None) -> Verified:
    """Read every byte of an image again and compare it with the digests that name it. Changes nothing.

    Raises StoreError for files that this user may not read.
    """
    layers = list({layer.diff_id: layer for layer in image.layers}.values())
    total = sum(layer.size_bytes for layer in layers)
    done = 0
    checks = []
    with store.guarded():
        documents = _damaged_documents(store, image)
        for number, layer in enumerate(layers, 1):
            progress(f"verifying layer {number} of {len(layers)}", done, total)
            checks.append(_check_layer(store, layer))
            done += layer.size_bytes
        progress("verifying packed files", done, total)
        packed = _damaged_packed(store, image)
        progress("verified", done, total)
    found = Verified(digest=image.digest, layers=tuple(checks), documents=documents)
    remedy = "" if found.ok else store.how_to_get(image)
    if packed and not remedy:
        files = " ".join(shlex.quote(str(path)) for path in packed)
        remedy = f"rm {files}   # it is packed again when a job needs it"
    details = tuple(
        f"the {path.name.removeprefix('image.')} file {detail}" for path, detail in packed.items()
    )
    return replace(found, packed=details, remedy=remedy)


def _damaged_packed(store: Store, image: Image) -> dict[Path, str]:
    """Packed file -> what is wrong with it. A file without metadata is not packed completely yet, and
    skipped."""
    found = {}
    for path in packed.files(store, image.digest):
        known = packed.about(path)
        if known is None:
            found[path] = f"{path} is not what was written there"
        elif packed.sha256(path) != known.sha256:
            found[path] = f"{path} was changed"
    return found


def _check_layer(store: Store, layer: Layer) -> LayerCheck:
    diff_id = layer.diff_id
    check_of = functools.partial(LayerCheck, diff_id=diff_id)
    tree, recipe = store.layer(diff_id), store.recipe(diff_id)
    if not tree.is_dir():
        return check_of(state=State.MISSING, detail=f"{tree} does not exist")
    files: tuple[str, ...] = ()
    count = wanted = 0
    try:
        facts = store.stored_layer(diff_id)
        if recipe.exists() or not facts.rebuildable:
            # A recipe has only the archive's content; the count shows added files, or a missing link.
            count, wanted = _count(tree), facts.inodes
        if recipe.exists():
            from bareboat_images.layers.tar_split import check

            digest, damaged = check(tree, recipe)
            files = tuple(os.fsdecode(path) for path in damaged)
        elif facts.rebuildable:
            digest, _ = canonical.digest_tree(str(tree))
        else:
            digest = ""
    except BareboatError as error:
        return check_of(state=State.DAMAGED, detail=error.message)
    except (OSError, ValueError) as error:  # an entry that this user cannot read, or that no layer has
        return check_of(state=State.DAMAGED, detail=str(error))
    if files or digest not in (diff_id, ""):
        return check_of(state=State.DAMAGED, detail=f"its content gives {digest}", files=files)
    if count != wanted:
        return check_of(
            state=State.DAMAGED,
            detail=f"it has {count:,} files and directories, not {wanted:,}",
        )
    if not digest:
        return check_of(
            state=State.UNKNOWN,
            detail="how its archive was made could not be kept, so there is nothing to compare it with",
        )
    return check_of(state=State.WHOLE)


def _count(tree: Path) -> int:
    """The number of inodes of a tree, including its root directory."""
    found = {(state.st_dev, state.st_ino) for state in contents.states(tree, [])}
    return len(found) + 1


def _damaged_documents(store: Store, image: Image) -> tuple[str, ...]:
    damaged = []
    for what, digest in (("manifest", image.digest), ("config", contents.config_digest(store, image.digest))):
        if digest is None:
            continue
        try:
            data = store.document(digest)
        except StoreError as error:
            damaged.append(f"the {what} {digest}: {error.message}")
            continue
        if data is None:
            damaged.append(f"the {what} {digest} is missing")
        elif not digests.is_of(digest, data):
            damaged.append(f"the {what} {digest} was changed")
    return tuple(damaged)
