"""Facts about engines and MPIs that are true until something changes on which they depend.

Starting a program in each engine takes longer than the start of a container, and each launcher of an MPI
reads a hundred plug-ins to print its version. What worked is kept in the store for a day, for this boot, this
user, the container or the shell that it was found in, this PATH and these programs. It is found out again by
doctor, and after a run that failed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from bareboat import registry
from bareboat.model import EngineFacts
from bareboat_base import codec, digests
from bareboat_base.errors import BareboatError
from bareboat_images.store import Store

#: What is older is found out again: something may decide it that is not listed here.
_OLDEST_S = 24 * 3600.0
#: Of a container, which has the boot of the machine around it.
_NAMESPACES = ("user", "mnt")
_STATUS = ("CapEff:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:")


T = TypeVar("T", bound=Struct)


class _Stored(Struct, Generic[T], frozen=True):
    """Facts. `key`: a digest of what they depend on; `at_s`: when they were found out, in seconds since
    1970."""

    key: str
    at_s: float
    facts: tuple[T, ...]


class Kept(Generic[T]):
    """The facts about one subject. `files`: the files on which facts depend."""

    def __init__(
        self, store: Store, name: str, kind: type[T], files: Callable[[tuple[T, ...]], Iterator[str]]
    ) -> None:
        self._store = store
        self._kind = kind
        self._files = files
        self._path = store.kept_facts(name)

    def read(self, state: str) -> tuple[T, ...] | None:
        """The facts, if they are still true in this state of the machine."""
        if not self._path.is_file():
            return None
        try:
            stored = self._store.read(self._path, _Stored[self._kind])  # type: ignore[name-defined]
        except BareboatError:  # it is written again
            return None
        fresh = 0 <= time.time() - stored.at_s < _OLDEST_S
        return stored.facts if fresh and stored.key == self._key(stored.facts, state) else None

    def write(self, facts: tuple[T, ...], state: str) -> None:
        """Store facts found out in this state of the machine; without any, forget those of before."""
        with contextlib.suppress(BareboatError, OSError):  # a full disk: the next command asks again
            if facts:
                found = _Stored(self._key(facts, state), time.time(), facts)
                self._store.write(self._path, codec.to_json(found))
            else:
                self._path.unlink(missing_ok=True)

    def _key(self, facts: tuple[T, ...], state: str) -> str:
        parts = [state, *map(_file, self._files(facts))]
        return digests.of("\0".join(parts).encode(errors="surrogateescape"))


def of_engine(store: Store, name: str) -> Kept[EngineFacts]:
    """Facts about an engine and its modes."""

    def files(facts: tuple[EngineFacts, ...]) -> Iterator[str]:
        yield sys.modules[type(registry.engine(name)).__module__].__file__ or ""
        yield from (each.path for each in facts if each.path)

    return Kept(store, name, EngineFacts, files)


def state() -> str:
    """The present state of what all facts depend on; without what this kernel does not show."""
    parts = [str(os.getuid()), os.environ.get("PATH", "")]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        parts.append(stream.read())
    for each in _NAMESPACES:
        with contextlib.suppress(OSError):
            parts.append(os.readlink(f"/proc/self/ns/{each}"))
    with open("/proc/self/status", encoding="utf-8", errors="replace") as stream:
        parts += (line for line in stream if line.startswith(_STATUS))
    return "\n".join(parts)


def _file(path: str) -> str:
    """What changes when a file is replaced."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return f"{path}: none"
    return f"{path}: {state.st_dev} {state.st_ino} {state.st_size} {state.st_mtime_ns}"
