"""Facts about engines and MPIs that are true until something changes on which they depend.

Starting a program in each engine takes longer than the start of a container, and each launcher of an MPI
reads a hundred plug-ins to print its version. What worked is kept in the store, with a digest of what decides
it: the boot, the user's IDs, capabilities, limits and namespaces, the kernel's settings, the variables and
files that engines and MPIs read, the directories of PATH, and the programs. It is found out again by doctor,
and after a run that failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from bareboat import registry
from bareboat.model import EngineFacts, MpiFacts
from bareboat.probe import mpis
from bareboat.probe.permits import SWITCHES, YAMA
from bareboat_base import codec
from bareboat_base.errors import BareboatError
from bareboat_base.files.mounts import mount_of
from bareboat_images.store import Store

#: What is older is found out again: something may decide it that is not listed here.
_OLDEST_S = 24 * 3600.0
_STATUS = ("CapPrm:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:")
_NAMESPACES = ("user", "mnt", "pid", "net", "cgroup", "time")
_LIMITS = ("AS", "CORE", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")
#: Files and directories that engines and MPIs read, besides their own.
_FILES = (
    "/", "/tmp", "/dev/fuse", "/etc/subuid", "/etc/subgid", "/etc/ld.so.cache",
    "/etc/apptainer/apptainer.conf", "/etc/singularity/singularity.conf", "/etc/containers",
    "/usr/share/containers", "~/.apptainer", "~/.singularity", "~/.config/containers", "~/.udocker",
    "~/.openmpi/mca-params.conf", "~/.pmix/mca-params.conf",
)  # fmt: skip
#: Prefixes of variables that engines, MPIs, or the programs they start, read.
_VARIABLES = (
    "APPTAINER", "BAREBOAT", "BUILDAH", "CH_", "CONTAINER", "DBUS_", "ENROOT", "FI_", "HOME", "HYDRA_",
    "I_MPI", "LD_", "MPI", "OMPI_", "OPAL_", "PATH", "PMIX_", "PODMAN", "PROOT", "PRTE_", "SARUS",
    "SINGULARITY", "SHIFTER", "STORAGE_", "TMPDIR", "UCX_", "UDOCKER", "USER", "XDG_",
)  # fmt: skip


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
        return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()


def of_engine(store: Store, name: str) -> Kept[EngineFacts]:
    """Facts about an engine and its modes."""

    def files(facts: tuple[EngineFacts, ...]) -> Iterator[str]:
        yield sys.modules[type(registry.engine(name)).__module__].__file__ or ""
        yield from (each.path for each in facts if each.path)

    return Kept(store, name, EngineFacts, files)


def of_launchers(store: Store) -> Kept[MpiFacts]:
    """Facts about the MPIs whose launchers are on PATH."""

    def files(facts: tuple[MpiFacts, ...]) -> Iterator[str]:
        yield mpis.__file__
        for each in facts:
            yield from (path for path in (each.launcher, each.library) if path is not None)

    return Kept(store, "launchers", MpiFacts, files)


def state(store: Store) -> str:
    """The present state of what all facts depend on: this process, its user, the kernel, and the file
    system of the store."""
    return "\n".join(_parts(store))


def _parts(store: Store) -> Iterator[str]:
    with contextlib.suppress(OSError):
        mount = mount_of(str(store.root))
        yield str((str(store.root), mount.kind, mount.options))
    yield str((os.getresuid(), os.getresgid(), sorted(os.getgroups())))
    settings = (*(path for path, _, _ in SWITCHES), YAMA, "/proc/sys/kernel/random/boot_id")
    for path in (*settings, "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/attr/current"):
        yield _text(path)
    yield "\n".join(line for line in _text("/proc/self/status").splitlines() if line.startswith(_STATUS))
    for each in _NAMESPACES:
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/ns/{each}")
    yield str([resource.getrlimit(vars(resource)[f"RLIMIT_{each}"]) for each in _LIMITS])
    yield str(sorted((key, value) for key, value in os.environ.items() if key.startswith(_VARIABLES)))
    for path in (*map(os.path.expanduser, _FILES), *os.environ.get("PATH", "").split(":")):
        yield _file(path)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError as error:
        return str(error.errno)


def _file(path: str) -> str:
    """What changes when a file is replaced, or an entry of a directory. Of the root and of device files only
    what they are: others change their times."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return f"{path}: none"
    kind = (state.st_dev, state.st_ino, state.st_mode, state.st_uid, state.st_gid, state.st_rdev)
    lasting = path not in ("/", "/tmp") and not path.startswith("/dev/")
    return f"{path}: {kind}, {(state.st_size, state.st_mtime_ns) if lasting else ''}"
