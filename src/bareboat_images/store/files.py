"""The writing and reading of a store's files: whole or not at all, and for others only in a group's store."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from bareboat_base import codec
from bareboat_base.errors import BareboatError, StoreError, UsageError
from bareboat_base.files import failures, ownership, untrusted
from bareboat_base.files.trees import remove_tree
from bareboat_base.paths import lies_in
from bareboat_base.printable import one_line
from bareboat_images.store.owners import is_dead, owner
from bareboat_images.store.paths import Paths

T = TypeVar("T")
_ELSEWHERE = "choose another directory, such as --store ~/bareboat, or BAREBOAT_STORE=~/bareboat"
#: The same where the home directory may be what cannot be written.
_ANYWHERE = "choose a directory that you may write: --store DIR, or BAREBOAT_STORE=DIR"
#: Limit of files that are read completely. Memory samples of several days take some megabytes.
_MOST_JSON_BYTES = 64 << 20
#: Directory of the store -> the remedy for a damaged file in it.
AGAIN = {
    "images": "bareboat image pull --fresh REFERENCE, or bareboat image capture --fresh   # writes it again",
    "pins": "rm {path}   # and bareboat image pull REFERENCE writes it again",
    "names": "rm {path}   # and bareboat image tag IMAGE NAME writes it again",
    "captures": "rm {path}   # the next capture writes it again",
    "blobs": "rm {path}   # and bareboat image pull --fresh REFERENCE writes it again",
    "parts": "rm {path}   # the next pull writes it again",
    "leases": "rm {path}",
    "packed": "rm {path}   # it is packed again when a job needs it",
    "layers": "bareboat image pull --fresh REFERENCE, or bareboat image capture --fresh   # writes it again",
    "facts": "rm {path}   # the next command writes it again",
    "sites": "bareboat doctor --compute   # probes the compute nodes again",
    "instances": "rm {path}   # and create the container again",
    "host-libraries": "rm {path}   # Bareboat writes it again",
    "host-mpis": "rm {path}   # Bareboat writes it again",
    "mpi-checks": "rm {path}   # the next run writes it again",
    "runs": "restore it from a backup, or remove the run: rm -r {run}",
}


#: The part of a scratch directory that only its owner enters, in a group's store.
_WORK = "work"
_serials = itertools.count(1)  # per process, which may open one store several times


class Files(Paths):
    """The writing and reading of a store's files."""

    VERSION = "2"

    @contextlib.contextmanager
    def scratch(self, *, own: bool = False) -> Iterator[Path]:
        """A directory for work in progress, removed at the end. `own`: in the user's own store, for data that
        is not part of an image. Nobody else can write to it."""
        root = self.own if own else self.root
        with self.guarded():
            self._make(root)
            folder = root / "tmp" / f"{owner()}-{next(_serials)}"
            folder.mkdir(mode=0o700)
            work = folder
            if self.own != root and root == self.root:
                folder.chmod(0o2750)  # other members of the group read who works, and the claims
                work = folder / _WORK
                work.mkdir(mode=0o700)
        try:
            with self.guarded():
                yield work
        finally:
            with contextlib.suppress(OSError):  # the next sweep removes files that NFS holds
                remove_tree(folder)

    def publish(self, made: Path, final: Path) -> None:
        """Rename a finished tree or file into place. If another writer was first, nothing is lost: the
        content is equal, because its name is its digest."""
        with self.guarded():
            final.parent.mkdir(parents=True, exist_ok=True)
            self._share(made, final)
            try:
                os.rename(made, final)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise

    def write(self, path: Path, data: bytes) -> None:
        """Write a file completely or not at all."""
        with self.scratch(own=self.is_own(path)) as scratch:
            part = scratch / "part"
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as stream:
                stream.write(data)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._share(part, path)
            os.replace(part, path)

    def is_own(self, path: Path) -> bool:
        """Whether a path lies in the user's own store and not in the group's."""
        return self.own != self.root and path.is_relative_to(self.own)

    def _share(self, made: Path, final: Path) -> None:
        """In a group's store, make new data readable for the group whatever the umask: the file, or the
        tree's top directories and the files in them. Nobody else may write below: the image's own modes are
        in the layer's recipe."""
        if self.own == self.root or self.is_own(final):
            return
        gid = os.stat(self.root).st_gid
        inner = sorted(made.iterdir()) if made.is_dir() else []
        for path in (made, *inner):
            if not path.is_symlink():
                os.chown(path, -1, gid)
                os.chmod(path, os.stat(path).st_mode & 0o755 | (0o050 if path.is_dir() else 0o040))
        for name, mode in writable(made):
            os.chmod(name, stat.S_IMODE(mode) & ~0o022)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside, a full disk, a quota or a missing permission becomes one clear error."""
        try:
            with failures.at(self.root):
                yield
        except (FileNotFoundError, FileExistsError):  # regular answers for the caller
            raise
        except OSError as error:
            if (explained := self.explain(error)) is None:
                raise
            raise explained from error

    def explain(self, error: OSError) -> BareboatError | None:
        """The error for the user; None where it does not concern the store."""
        path = failures.path_of(error) or ""
        inside = next((root for root in (self.root, self.own) if lies_in(path, str(root))), None)
        # The home directory, for example, in which the store's directory cannot be made.
        around = next((root for root in (self.root, self.own) if path and lies_in(str(root), path)), None)
        root = inside or around
        found = None if root is None else failures.explain(error)
        if not isinstance(found, StoreError | UsageError):
            return found
        if isinstance(error, untrusted.UntrustedFileError):
            return self._unusable(Path(path), error)
        remedy = _ELSEWHERE if inside else _ANYWHERE
        match error.errno:
            case errno.ENOSPC:
                message = f"the file system of the store {root} is full; no partial data was kept"
                remedy = f"free some space there, or {remedy}"
            case errno.EDQUOT:
                message = f"your quota on the file system of the store {root} is used up"
                remedy = f"free some space there, or {remedy}"
            case errno.EACCES | errno.EPERM:
                message = f"you may not use the store {root}"
            case errno.EROFS:
                message = f"the store {root} cannot be written"
            case errno.ENOTDIR:
                message = f"the store {root} is not a directory"
            case _:
                message, remedy = f"the store {root} cannot be used: {found.message}", found.remedy
        return StoreError(
            message, context=found.context or found.message * (found.message not in message), remedy=remedy
        )

    def check_version(self, *, must_exist: bool = False) -> None:
        """Raise StoreError for a store of another version, whose content would seem to be missing."""
        for root in {self.root, self.own}:
            _version(root)
        if must_exist and not self.root.is_dir():
            remedy = "bareboat config store   # without --store, shows the store that is used"
            raise StoreError(f"the store {self.root} does not exist", key="store", remedy=remedy)

    def _make(self, root: Path) -> None:
        version, found = root / "version", _version(root)
        try:
            if not found:
                _make_private_folder(root)
            (root / "tmp").mkdir(exist_ok=True)
        except (FileExistsError, FileNotFoundError) as error:  # a dangling link, or a path such as /proc
            raise StoreError(
                f"the store {root} cannot be created",
                context=str(error),
                remedy=_ANYWHERE,
            ) from None
        if not found:
            version.write_text(self.VERSION + "\n")
            if self._chosen_because.startswith("default"):
                import logging

                logging.getLogger("bareboat").warning("created the store %s (%s)", root, self._chosen_because)
        if root not in self._swept:
            self._swept.add(root)
            _sweep(root)

    def sweep(self) -> None:
        """Remove work in progress of dead processes on this machine."""
        for root in {self.root, self.own}:
            _sweep(root)

    def check_room(self, *, needed_bytes: int, needed_inodes: int, what: str) -> None:
        """Raise StoreError when the file system or the user's quota has too little room."""
        from bareboat_images.place import Room

        room = Room.at(str(self.root))
        where = f"the file system of the store {self.root}"
        if room.limited_by == "quota":
            where = f"your quota on {where}"
        remedy = "choose a directory with more space: --store DIR, or BAREBOAT_STORE=DIR"
        if needed_bytes > room.free_bytes:
            raise StoreError(
                f"{what} needs {needed_bytes / 1e6:,.0f} MB, and {where} has "
                f"{max(room.free_bytes, 0) / 1e6:,.0f} MB free",
                remedy=remedy,
            )
        if room.free_inodes is not None and needed_inodes > room.free_inodes:
            raise StoreError(
                f"{what} needs {needed_inodes:,} files, and {where} has "
                f"{max(room.free_inodes, 0):,} inodes free",
                remedy=remedy,
            )

    def discard(self, path: Path) -> None:
        """Hide a tree or file of the store by a rename, then remove it."""
        with self.scratch(own=self.is_own(path)) as scratch:
            try:
                os.rename(path, scratch / "discarded")
            except FileNotFoundError:
                return

    def read_bytes(self, path: Path, *, limit: int = _MOST_JSON_BYTES) -> bytes:
        """A whole file of the store, which another member of the group may have put there.

        Raises FileNotFoundError, and StoreError for anything but a regular file of at most `limit` bytes.
        """
        with self.guarded():
            return untrusted.read_bytes(path, limit=limit)

    def _unusable(self, path: Path, error: OSError) -> StoreError:
        """The error for a link, a pipe or another thing in the place of a file."""
        try:
            whose = f"it belongs to {ownership.name_of(path.lstat().st_uid)}"
        except OSError:
            whose = ""
        return StoreError(f"{path} {error.strerror}", context=whose, remedy=self._how_to_replace(path))

    def read(self, path: Path, kind: type[T]) -> T:
        try:
            data = untrusted.read_bytes(path, limit=_MOST_JSON_BYTES)
        except FileNotFoundError:
            raise StoreError(f"{path.name} not found in {path.parent}", remedy=Paths.LIST_RUNS) from None
        except untrusted.UntrustedFileError as error:
            raise self._unusable(path, error) from None
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror or error}",
                remedy=f"check it: ls -l {shlex.quote(str(path))}",
            ) from None
        try:
            return codec.from_json(data, kind, what=str(path))
        except StoreError as error:
            raise error.but(remedy=self._how_to_replace(path)) from None

    def _how_to_replace(self, path: Path) -> str:
        """The remedy for a damaged file of the store: some can be written again, others are lost."""
        root = self.root if path.is_relative_to(self.root) else self.own
        room, *below = path.relative_to(root).parts if path.is_relative_to(root) else ("",)
        run = shlex.quote(str(root / "runs" / below[0])) if below else ""
        return AGAIN.get(room, "restore it from a backup").format(path=shlex.quote(str(path)), run=run)


def _version(root: Path) -> str:
    """The store's version, or "" for one that does not exist. Raises StoreError for another version, and for
    a directory with other files."""
    try:
        found = untrusted.read_text(root / "version").strip()
    except FileNotFoundError:
        others = set(os.listdir(root)) - {"tmp", *AGAIN} if root.is_dir() else set()
        if others and "version" not in others:  # which is written first, by another process meanwhile
            raise StoreError(
                f"{root} is not a store, and is not empty",
                key="store",
                remedy=f"use a directory of its own: --store {shlex.quote(str(root / 'bareboat'))}",
            ) from None
        return ""
    if found and found != Files.VERSION:
        raise StoreError(
            f"the store {root} has version {one_line(found)}; this Bareboat uses version {Files.VERSION}",
            key="store",
            remedy=_ELSEWHERE,
        )
    return found


def _make_private_folder(root: Path) -> None:
    """Make a directory for this user only, whatever the umask; nobody else can write to new parent
    directories."""
    above = [path for path in root.parents if not path.exists()]
    root.parent.mkdir(parents=True, exist_ok=True)
    for path in above:
        os.chmod(path, stat.S_IMODE(path.stat().st_mode) & ~0o022)
    root.mkdir(mode=0o700, exist_ok=True)
    os.chmod(root, 0o700)


def claims(scratch: Path) -> Path:
    """The file with the layers that work in this scratch directory needs."""
    return (scratch.parent if scratch.name == _WORK else scratch) / "claims"


def writable(made: Path) -> Iterator[tuple[str, int]]:
    """What others than the owner may write in a tree, and its mode."""
    for folder, _, names in os.walk(made) if made.is_dir() else ():
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            mode = os.lstat(path).st_mode
            if mode & 0o022 and not stat.S_ISLNK(mode):
                yield path, mode


def _sweep(root: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in (root / "tmp").iterdir():
            if is_dead(folder.name.rpartition("-")[0]):
                with contextlib.suppress(OSError):
                    remove_tree(folder)
