"""The program of a job that is no part of its captured environment: a layer of its own above it.

The layer has what the environment lacks: the program, unless the container shows it, and its libraries. So
another program captures no environment again, and one whose files are all there adds nothing.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from bareboat.captures import facts, stored
from bareboat.captures.collect import Collection, Item, Part
from bareboat.captures.libraries import Needs, close
from bareboat.captures.sources import find_programs
from bareboat.model import Image, Layer
from bareboat_base import architectures, codec
from bareboat_base.elf import loader
from bareboat_images.inside.survey import COMPILERS
from bareboat_images.layers.view import View
from bareboat_images.progress import Progress
from bareboat_images.store import Store

#: Increase it when the same files would give a different image.
_FORMAT = "1"


class CapturedCommand(Struct, frozen=True):
    """A program by its path. `shown`: directories that the container shows; `is_shown`: the program is in one
    of them, so that only its libraries are added."""

    path: str
    shown: tuple[str, ...]
    is_shown: bool


class _Added(Struct, frozen=True):
    """What the layer has: `collection`, all of one part; and what the program needs."""

    collection: Collection
    needs: Needs

    def key(self, image: Image) -> str:
        lines = self.collection.states()
        folders = self.needs.folders.by_name
        return codec.digest([_FORMAT, image.digest, [os.fsencode(line).hex() for line in lines], folders])


def look_up(image: Image, command: CapturedCommand, store: Store) -> Image | str:
    """The image with the command if it is in the store; otherwise a description of what would be added."""
    added = _added(image, command, store)
    if not added.collection.items:
        return image
    if (known := stored(store, added.key(image))) is not None:
        return known
    return (
        f"add {os.path.basename(command.path)} and its libraries to the captured environment: "
        f"{added.collection.size_bytes / 1e6:,.1f} MB in {len(added.collection.items):,} files and "
        "directories"
    )


def extended(image: Image, command: CapturedCommand, store: Store, progress: Progress) -> Image:
    """The environment's image with the command."""
    added = _added(image, command, store)
    if not added.collection.items:
        return image
    key = added.key(image)
    if (known := stored(store, key)) is not None:
        return known
    from bareboat.captures.build import build_layer

    store.check_room(
        needed_bytes=added.collection.size_bytes + 16 * 2**20,
        needed_inodes=len(added.collection.items) + 64,
        what="the command and its libraries",
    )
    with store.scratch() as scratch:
        layer = build_layer(added.collection, scratch, "command", progress)
        store.add_layer(scratch / layer.comment, layer)
        found = _joined(image, command, added, store, layer)
    store.remember_capture(key, found.digest, {})
    return found


def _added(image: Image, command: CapturedCommand, store: Store) -> _Added:
    collection = Collection()
    seeds = []
    if command.is_shown:
        seeds.append(os.path.realpath(command.path))
    else:
        for path in find_programs((command.path,))[0]:
            collection.add(path, Part.PACKAGES)
    here = loader.of_machine(os.environ.get("LD_LIBRARY_PATH", ""))
    needs = close(collection, here, seeds, command.shown)
    collection.check_readable()
    view = store.view(image)
    kept = Collection()
    for path, item in collection.items.items():
        if view.find(path) is None:
            kept.items[path] = item._replace(part=Part.PACKAGES)
    for path in list(kept.items):
        _keep_parents(path, kept, view)
    kept.left_out = collection.left_out
    return _Added(kept, needs)


def _keep_parents(path: str, kept: Collection, view: View) -> None:
    """Give the directories above a path the modes that they have in the environment."""
    while (path := os.path.dirname(path)) not in ("/", ""):
        found = view.find(path)
        if found is not None and found.node.kind == "folder" and path not in kept.items:
            mode = os.stat(found.node.places[0]).st_mode & 0o7777
            kept.items[path] = Item(Part.PACKAGES, "folder", mode)


def _joined(image: Image, command: CapturedCommand, added: _Added, store: Store, layer: Layer) -> Image:

    layers = (*image.layers, layer)
    items = added.collection.items
    environment = dict(image.environment)
    usual = architectures.library_folders(os.uname().machine)
    folders = [each for each in environment.get("LD_LIBRARY_PATH", "").split(":") if each]
    folders += [each for each in added.needs.folders.by_name if each not in (*usual, *folders)]
    if folders:
        environment["LD_LIBRARY_PATH"] = ":".join(folders)
    name = os.path.basename(command.path)
    from bareboat.captures.build import config_of
    from bareboat_images.transfer import export

    has_mpi = any(os.path.basename(path).startswith("libmpi") for path in items)
    more = {}
    if has_mpi:
        trees = [store.layer(each.diff_id) for each in layers]
        more = facts.searched(trees, environment, mpi=True, cuda=image.cuda)
    found = msgspec.structs.replace(
        image,
        layers=layers,
        environment=environment,
        unresolved_libraries=tuple(sorted({*image.unresolved_libraries, *added.needs.unresolved})),
        notes=(*image.notes, *added.collection.left_out),
        compiler=image.compiler or name in COMPILERS,
        **more,
    )
    config = config_of(layers, machine=os.uname().machine, environment=environment)
    return export.keep(store, found, config=config)
