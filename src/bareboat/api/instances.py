"""Containers that keep changes: each has a copy of an image's root file system, an ID, and names."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bareboat.api import opened
from bareboat.api.boundary import translated
from bareboat.model import Image
from bareboat.session import containers
from bareboat_base import codec
from bareboat_base.errors import BareboatError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from bareboat_images.store import Store

_FACTS, _ROOT = "instance.json", "root"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Instance(Struct, frozen=True, kw_only=True):
    """`reference`: what it was created from; `tree`: its root file system; `names`: in the order in which
    they were set; `gpu`: the vendor of the driver that each run mounts, or ""."""

    id: str
    reference: str
    image: Image
    tree: str
    names: tuple[str, ...] = ()
    gpu: str = ""


@translated()
def create(image: str, *, name: str | None = None, plain_http: str = "") -> Instance:
    """Copy the root file system of an image, which is pulled if the store lacks it. Raises UsageError for a
    name that is invalid or in use, ImageError, StoreError."""
    from bareboat_images.formats import flatten

    session = opened.session(plain_http=plain_http)
    store = session.store
    if name is not None:
        _check_name(name)
    content = containers.stored(session, image)
    key = str(uuid.uuid4())
    final = store.instances() / key
    names = () if name is None else (name,)
    instance = Instance(id=key, reference=image, image=content, tree=str(final / _ROOT), names=names)
    with store.scratch(own=True) as scratch:
        folder = scratch / key
        folder.mkdir(mode=0o700)
        flatten.copy(store.trees(content), folder / _ROOT)
        (folder / _FACTS).write_bytes(codec.to_json(instance))
        store.publish(folder, final)
    return instance


@translated()
def at(path: str) -> Instance:
    """A directory of this machine as a container that keeps changes."""
    image, tree = containers.in_place(path)
    return Instance(id=tree, reference=tree, image=image, tree=tree)


@translated()
def every() -> list[Instance]:
    """All containers, by ID. Damaged entries are left out."""
    store = opened.session(looks=True).store
    instances = []
    top = store.instances()
    for folder in sorted(top.iterdir()) if top.is_dir() else ():
        try:
            instances.append(_read(store, folder))
        except (BareboatError, FileNotFoundError):  # one is removed at this moment
            continue
    return instances


@translated()
def find(text: str) -> Instance | None:
    """The container with this name or ID."""
    store = opened.session(looks=True).store
    if re.fullmatch(r"[0-9a-f-]{36}", text) and (store.instances() / text).is_dir():
        return _read(store, store.instances() / text)
    return next((each for each in every() if text in each.names), None)


@translated()
def remove(instance: Instance) -> None:
    """Remove a container with its changes."""
    store = opened.session().store
    store.discard(store.instances() / instance.id)


@translated()
def change(instance: Instance, *, names: tuple[str, ...] | None = None, gpu: str | None = None) -> None:
    """Set the names of a container, or the vendor of its GPU driver. Raises UsageError for a name that is
    invalid or in use."""
    store = opened.session().store
    names = instance.names if names is None else names
    for each in names:
        if each not in instance.names:
            _check_name(each)
    changed = msgspec.structs.replace(instance, names=names, gpu=instance.gpu if gpu is None else gpu)
    store.write(store.instances() / instance.id / _FACTS, codec.to_json(changed))


def _read(store: Store, folder: Path) -> Instance:
    instance: Instance = store.read(folder / _FACTS, Instance)
    return msgspec.structs.replace(instance, tree=str(folder / _ROOT))  # the store may have moved


def _check_name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise UsageError(f"{text!r} is not a valid container name", remedy="use letters and digits")
    if find(text) is not None:
        raise UsageError(
            "container name already exists", context=text, remedy="remove it, or use another name"
        )
