"""Containers that keep changes: each has a copy of an image's root file system, an ID, and names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bareboat_base import codec
from bareboat_base.errors import BareboatError
from bareboat_images.model import Image
from bareboat_images.store.owners import is_alive, is_dead, owner

if TYPE_CHECKING:
    from bareboat_images.store import Store

FACTS, ROOT = "instance.json", "root"
_USERS = "users"
_ID = re.compile(r"[0-9a-f-]{36}")


class Instance(Struct, frozen=True, kw_only=True):
    """`reference`: what it was created from; `tree`: its root file system; `names`: in the order in which
    they were set; `gpu`: the vendor of the driver that each run mounts, or ""; `origin`: what created it;
    `temporary`: nobody needs it after that."""

    id: str
    reference: str
    image: Image
    tree: str
    names: tuple[str, ...] = ()
    gpu: str = ""
    origin: str = ""
    temporary: bool = False


class User(Struct, frozen=True, kw_only=True):
    """A process that runs a command in a container: for `what`, with these `settings`."""

    what: str
    settings: dict[str, str]


def every(store: Store) -> Iterator[tuple[Path, Instance]]:
    """The directories of all containers, by ID. Damaged entries are left out."""
    top = store.instances()
    for folder in sorted(top.iterdir()) if top.is_dir() else ():
        try:
            yield folder, _read(store, folder)
        except (BareboatError, FileNotFoundError):  # one is removed at this moment
            continue


def find(store: Store, text: str) -> Instance | None:
    """The container with this name or ID."""
    if _ID.fullmatch(text) and (store.instances() / text).is_dir():
        return _read(store, store.instances() / text)
    return next((each for _, each in every(store) if text in each.names), None)


def _read(store: Store, folder: Path) -> Instance:
    instance: Instance = store.read(folder / FACTS, Instance)
    return msgspec.structs.replace(instance, tree=str(folder / ROOT))  # the store may have moved


def enter(store: Store, instance: Instance, user: User) -> Path:
    """Note that this process runs a command in the container; return the note, for removal at its end."""
    folder = store.instances() / instance.id
    for path in (folder / _USERS).glob("*"):
        if is_dead(path.name):
            path.unlink(missing_ok=True)
    note = folder / _USERS / owner()
    store.write(note, codec.to_json(user))
    return note


def users(store: Store, instance: Instance) -> list[User]:
    """Those whose processes live on this machine."""
    folder = store.instances() / instance.id / _USERS
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            if is_alive(path.name):
                found.append(store.read(path, User))
        except BareboatError:  # it ends at this moment
            continue
    return found
