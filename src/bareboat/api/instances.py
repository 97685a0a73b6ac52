"""Containers that keep changes: each has a copy of an image's root file system, an ID, and names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat.session import containers
from bareboat_base.errors import UsageError
from bareboat_images.store.instances import Instance as Instance
from bareboat_images.store.instances import Instances

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@translated()
def create(
    image: str,
    *,
    reference: str = "",
    name: str | None = None,
    origin: str = "",
    temporary: bool = False,
    plain_http: str = "",
) -> Instance:
    """Copy the root file system of an image, which is pulled if the store lacks it. `reference`, `origin`,
    `temporary`: as in `Instance`; without `reference` it is `image`. Raises UsageError for a name that is
    invalid or in use, ImageError, StoreError."""
    from bareboat_images.formats.flatten import copy

    session = opened.session(plain_http=plain_http)
    store = session.store
    if name is not None:
        _check_name(name)
    content = containers.stored(session, image)
    return Instances(store).create(
        content,
        lambda root: copy(store.trees(content), root),
        reference=reference or image,
        names=() if name is None else (name,),
        origin=origin,
        temporary=temporary,
    )


@translated()
def provide(image: str, *, name: str, origin: str, temporary: bool = False) -> Instance:
    """The container with this name; one of all processes that call this at the same time creates it. As
    `create`."""
    from bareboat_images import lease

    store = opened.session().store
    kept = Instances(store)
    with lease.hold(store.lease(f"instance-{name}"), until=lambda: kept.find(name) is not None):
        found = kept.find(name)
        return found or create(image, name=name, origin=origin, temporary=temporary)


@translated()
def at(path: str) -> Instance:
    """A directory of this machine as a container that keeps changes."""
    image, tree = containers.in_place(opened.session(), path)
    return Instance(id=tree, reference=tree, image=image, tree=tree)


@translated()
def every() -> list[Instance]:
    """All containers, by ID. Damaged entries are left out."""
    return [instance for _, instance in _kept(looks=True).every()]


@translated()
def find(text: str) -> Instance | None:
    """The container with this name or ID."""
    return _kept(looks=True).find(text)


def used(instance: Instance, what: str, settings: Mapping[str, str]) -> AbstractContextManager[None]:
    """Note in a container that this process runs a command in it, for `what`, with these settings."""
    return _kept().used(instance, what, settings)


@translated()
def users(instance: Instance) -> list[tuple[str, dict[str, str]]]:
    """What commands on this machine run for in a container, with their settings."""
    return _kept(looks=True).users(instance)


@translated()
def save_squashfs(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write the root file system of a container as a squashfs, with the image's configuration in the files of
    Enroot. A file that exists is replaced. Requires mksquashfs."""
    from bareboat_images.formats.squash import make_squashfs

    target = Path(boundary.absolute("path", path))
    make_squashfs(Path(instance.tree), target, image=instance.image)


@translated()
def remove(instance: Instance) -> None:
    """Remove a container with its changes."""
    _kept().remove(instance)


@translated()
def change(instance: Instance, *, names: tuple[str, ...] | None = None, gpu: str | None = None) -> None:
    """Set the names of a container, or the vendor of its GPU driver. Raises UsageError for a name that is
    invalid or in use."""
    names = instance.names if names is None else names
    for each in names:
        if each not in instance.names:
            _check_name(each)
    _kept().change(instance, names=names, gpu=instance.gpu if gpu is None else gpu)


def _kept(*, looks: bool = False) -> Instances:
    return Instances(opened.session(looks=looks).store)


def _check_name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise UsageError(f"{text!r} is not a valid container name", remedy="use letters and digits")
    if find(text) is not None:
        raise UsageError(
            "container name already exists", context=text, remedy="remove it, or use another name"
        )
