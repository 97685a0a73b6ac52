"""Containers that keep changes: each has a copy of an image's root file system, an ID, and names."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bareboat_base import codec
from bareboat_base.errors import BareboatError
from bareboat_images.model import Image
from bareboat_images.store.owners import is_alive, is_dead, owner

if TYPE_CHECKING:
    from bareboat_images.store import Store

_FACTS, _ROOT = "instance.json", "root"
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


class _User(Struct, frozen=True, kw_only=True):
    """A process that runs a command in a container: for `what`, with these `settings`."""

    what: str
    settings: dict[str, str]


class Instances:
    """The containers of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def every(self) -> Iterator[tuple[Path, Instance]]:
        """The directories of all containers, by ID. Damaged entries are left out."""
        top = self._store.instances()
        for folder in sorted(top.iterdir()) if top.is_dir() else ():
            try:
                yield folder, self._read(folder)
            except (BareboatError, FileNotFoundError):  # one is removed at this moment
                continue

    def find(self, text: str) -> Instance | None:
        """The container with this name or ID."""
        if _ID.fullmatch(text) and (folder := self._store.instances() / text).is_dir():
            return self._read(folder)
        return next((each for _, each in self.every() if text in each.names), None)

    def create(self, image: Image, fill: Callable[[Path], None], **facts: Any) -> Instance:
        """A new container of an image. `fill` makes its root file system; `facts`: fields of `Instance`."""
        key = str(uuid.uuid4())
        final = self._store.instances() / key
        instance = Instance(id=key, image=image, tree=str(final / _ROOT), **facts)
        with self._store.scratch(own=True) as scratch:
            folder = scratch / key
            folder.mkdir(mode=0o700)
            fill(folder / _ROOT)
            (folder / _FACTS).write_bytes(codec.to_json(instance))
            self._store.publish(folder, final)
        return instance

    def change(self, instance: Instance, **facts: Any) -> None:
        """Set fields of `Instance`."""
        changed = msgspec.structs.replace(instance, **facts)
        self._store.write(self._folder(instance) / _FACTS, codec.to_json(changed))

    def remove(self, instance: Instance) -> None:
        self._store.discard(self._folder(instance))

    @contextlib.contextmanager
    def used(self, instance: Instance, what: str, settings: Mapping[str, str]) -> Iterator[None]:
        """Note in a container that this process runs a command in it, for `what`, with these settings."""
        users = self._folder(instance) / _USERS
        for path in users.glob("*"):
            if is_dead(path.name):
                path.unlink(missing_ok=True)
        note = users / owner()
        self._store.write(note, codec.to_json(_User(what=what, settings=dict(settings))))
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    def users(self, instance: Instance) -> list[tuple[str, dict[str, str]]]:
        """What processes on this machine run for in a container, with their settings."""
        folder = self._folder(instance) / _USERS
        found = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            try:
                if is_alive(path.name):
                    user = self._store.read(path, _User)
                    found.append((user.what, user.settings))
            except BareboatError:  # it ends at this moment
                continue
        return found

    def _folder(self, instance: Instance) -> Path:
        return self._store.instances() / instance.id

    def _read(self, folder: Path) -> Instance:
        instance: Instance = self._store.read(folder / _FACTS, Instance)
        return msgspec.structs.replace(instance, tree=str(folder / _ROOT))  # the store may have moved
