"""Containers that keep changes: each has a copy of an image's root file system, an ID, and names."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat.session import containers
from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_images.store import instances
from bareboat_images.store.instances import FACTS, ROOT
from bareboat_images.store.instances import Instance as Instance

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@translated()
def create(
    image: str, *, name: str | None = None, origin: str = "", temporary: bool = False, plain_http: str = ""
) -> Instance:
    """Copy the root file system of an image, which is pulled if the store lacks it. `origin`, `temporary`: as
    in `Instance`. Raises UsageError for a name that is invalid or in use, ImageError, StoreError."""
    from bareboat_images.formats import flatten

    session = opened.session(plain_http=plain_http)
    store = session.store
    if name is not None:
        _check_name(name)
    content = containers.stored(session, image)
    key = str(uuid.uuid4())
    final = store.instances() / key
    instance = Instance(
        id=key, reference=image, image=content, tree=str(final / ROOT),
        names=() if name is None else (name,), origin=origin, temporary=temporary,
    )  # fmt: skip
    with store.scratch(own=True) as scratch:
        folder = scratch / key
        folder.mkdir(mode=0o700)
        flatten.copy(store.trees(content), folder / ROOT)
        (folder / FACTS).write_bytes(codec.to_json(instance))
        store.publish(folder, final)
    return instance


@translated()
def provide(image: str, *, name: str, origin: str, temporary: bool = False) -> Instance:
    """The container with this name; one of all processes that call this at the same time creates it. As
    `create`."""
    from bareboat_images import lease

    store = opened.session().store
    with lease.hold(store.lease(f"instance-{name}"), until=lambda: instances.find(store, name) is not None):
        found = instances.find(store, name)
        return found or create(image, name=name, origin=origin, temporary=temporary)


@translated()
def at(path: str) -> Instance:
    """A directory of this machine as a container that keeps changes."""
    image, tree = containers.in_place(path)
    return Instance(id=tree, reference=tree, image=image, tree=tree)


@translated()
def every() -> list[Instance]:
    """All containers, by ID. Damaged entries are left out."""
    return [instance for _, instance in instances.every(opened.session(looks=True).store)]


@translated()
def find(text: str) -> Instance | None:
    """The container with this name or ID."""
    return instances.find(opened.session(looks=True).store, text)


@contextlib.contextmanager
def used(instance: Instance, what: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Note in a container that this process runs a command in it, for `what`, with these settings."""
    store = opened.session().store
    note = instances.enter(store, instance, instances.User(what=what, settings=dict(settings)))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


@translated()
def users(instance: Instance) -> list[tuple[str, dict[str, str]]]:
    """What commands on this machine run for in a container, with their settings."""
    found = instances.users(opened.session(looks=True).store, instance)
    return [(each.what, each.settings) for each in found]


@translated()
def save_squashfs(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write the root file system of a container as a squashfs, with the image's configuration in the files of
    Enroot. A file that exists is replaced. Requires mksquashfs."""
    from bareboat_images.formats import enroot, squash

    target = Path(boundary.absolute("path", path))
    enroot.write(Path(instance.tree), instance.image)
    squash.make_squashfs(Path(instance.tree), target)


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
    store.write(store.instances() / instance.id / FACTS, codec.to_json(changed))


def _check_name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise UsageError(f"{text!r} is not a valid container name", remedy="use letters and digits")
    if find(text) is not None:
        raise UsageError(
            "container name already exists", context=text, remedy="remove it, or use another name"
        )
