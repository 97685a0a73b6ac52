"""RUN with the user's subordinate IDs: files have their owners, and chown works.

The store's files belong to one user; their owners in the image are in the layers' recipes. Before a RUN, the
files of other owners are copied into its upper directory with their owners, in a user namespace that has the
IDs. After the RUN, unchanged copies are removed, the owners of the other files are recorded, and all files
are owned by this user again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from bareboat_base import execute
from bareboat_base.errors import ImageError
from bareboat_images.builder import owner_worker
from bareboat_images.builder.places import Owner, PlaceError, locate
from bareboat_images.builder.rootfs import Rootfs
from bareboat_images.layers.view import View
from bareboat_images.store import Store, is_dead


class Given(Struct, frozen=True):
    """Files copied with their owners before a RUN. `entries`: for the worker, parents first."""

    top: str
    entries: list[list[Any]]


class Taken(Struct, frozen=True):
    """The result of a RUN. `owners`: of files that root does not own; `kept`: directories whose owner
    changed."""

    owners: Mapping[bytes, Owner]
    kept: frozenset[str]


class Ids:
    """The user namespace of a build."""

    def __init__(self, namespace: execute.Namespace) -> None:
        self._namespace = namespace

    @property
    def descriptor(self) -> int:
        return self._namespace.descriptor

    def give(self, rootfs: Rootfs, known: Mapping[bytes, Owner], upper: Path) -> Given:
        """Copy the files of other owners into an upper directory. Raises ImageError for IDs outside of the
        user's range."""
        entries = list(_entries(rootfs.view, known))
        for path, _, *owner in entries:
            if max(owner) >= self._namespace.count:
                raise ImageError(
                    f"/{path} belongs to user {owner[0]}, group {owner[1]}, and you have "
                    f"{self._namespace.count:,} IDs",
                    remedy="ask the administrator for a longer range in /etc/subuid and /etc/subgid, or "
                    "build without --ids",
                )
        given = Given(str(upper), entries)
        self._namespace.ask(do="seed", top=given.top, entries=entries)
        return given

    def take(self, given: Given) -> Taken:
        """Record the owners of the files that a RUN changed, and make this user their owner."""
        said = self._namespace.ask(do="collect", top=given.top, entries=given.entries)
        owners = {os.fsencode(path): (uid, gid) for path, (uid, gid) in said["owners"].items()}
        return Taken(owners, frozenset(said["kept"]))

    def own(self, folder: str) -> None:
        """Make this user the owner of a directory and everything in it."""
        self._namespace.ask(do="own", top=folder)

    def discard(self, folder: Path) -> None:
        """Remove a directory, with files of any owner."""
        self._namespace.ask(do="remove", top=str(folder))


@contextlib.contextmanager
def started(store: Store) -> Iterator[Ids]:
    """The namespace of a build. Removes the scratch directories of killed builds. Raises PlanError with what
    is missing and the remedy."""
    with execute.subordinate(Path(owner_worker.__file__)) as namespace:
        made = Ids(namespace)
        with contextlib.suppress(OSError):
            for folder in (store.root / "tmp").iterdir():
                if is_dead(folder.name.rpartition("-")[0]):
                    made.discard(folder)
        yield made


def _entries(view: View, known: Mapping[bytes, Owner]) -> Iterator[list[Any]]:
    """The files of other owners and their directories, parents first."""
    seen: set[str] = set()
    for raw in sorted(known):
        name = os.fsdecode(raw).strip("/")
        parts = name.split("/")
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            if not path or path in seen:
                continue
            try:
                found = locate(view, f"/{path}", last_link=False)
            except PlaceError:
                break
            if found.node is None or found.path.strip("/") != path:
                break  # it was removed, or one of its parents is now a symbolic link
            seen.add(path)
            yield [path, found.node.places[0], *known.get(os.fsencode(path), (0, 0))]
