"""Directories of a tree while it is filled: resolves, creates and removes them, never outside of the tree.

Symbolic links of the layer are followed as in a chroot, by checking every step; the kernel never follows
one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from isal import isal_zlib

from bareboat_base.errors import ImageError
from bareboat_base.printable import file_name
from bareboat_images.layers import tar_split as recipes
from bareboat_images.layers.copies import FOLDER, NEW_FILE
from bareboat_images.layers.whiteouts import OPAQUE, OPAQUE_XATTR, is_whiteout
from bareboat_images.tar.limits import Limits, too_many

#: Errors caused by an entry itself; all others are caused by the file system or the machine.
ENTRYS_FAULT = frozenset(
    {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ELOOP, errno.EFBIG, errno.ENOENT, errno.ENOTDIR}
)
#: Errors that mean no more data can be written, not that a whiteout, attribute or link is unsupported.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

_MIB = 1 << 20
#: Limits on path resolution, for all entries and per entry: the total length in bytes of the paths checked on
#: the way to a directory. The longest path costs 4 MB; real images need some hundred bytes per entry.
_WALK_BYTES = 256 * _MIB
_WALK_BYTES_AN_ENTRY = 1 << 14


class Stamps:
    """Modes and times of directories: kept compressed, as a layer may have a million."""

    _RECORD = struct.Struct("<HHq")

    def __init__(self) -> None:
        self._open = bytearray()
        self._packed: list[bytes] = []

    def add(self, path: bytes, mode: int, mtime_ns: int) -> None:
        self._open += self._RECORD.pack(len(path), mode, mtime_ns)
        self._open += path
        if len(self._open) > _MIB:
            self._packed.append(isal_zlib.compress(self._open, 1))
            self._open = bytearray()

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield in order of addition: the last entry of a directory applies."""
        for data in (*map(isal_zlib.decompress, self._packed), bytes(self._open)):
            pos = 0
            while pos < len(data):
                length, mode, mtime_ns = self._RECORD.unpack_from(data, pos)
                pos += self._RECORD.size + length
                yield data[pos - length : pos], mode, mtime_ns


class Folders:
    """The directory that is filled, its subdirectories, and its size. All paths are bytes, relative to it."""

    def __init__(self, folder: Path, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        #: Entries of the tar so far, including the current one; and directories that no entry names.
        self.entries = 0
        self.implied = 0
        #: How many compressed bytes of the layer have been read.
        self.packed_bytes: Callable[[], int] = lambda: 0
        self._walked_bytes = 0
        self.recorder: recipes.Recorder | None = None
        self.umask = _umask(folder)
        self.inodes = 1
        self.unpacked_bytes = 0
        self.stackable = True
        self._root = os.open(folder, FOLDER)
        #: The directory of the last entry: its name in the layer, its real path (with a trailing slash,
        #: except for the root), and a descriptor.
        self.here: bytes | None = None
        self.prefix = b""
        self.here_fd = os.dup(self._root)
        #: Directories known to be real, with all their parents: no symbolic link can lead out of these.
        self._real: set[bytes] = set()
        self._real_bytes = 0
        self._stamps = Stamps()
        self._root_stamped = False
        self._tells_case: bool | None = None

    def close(self) -> None:
        for descriptor in (self.here_fd, self._root):
            os.close(descriptor)

    def refuse(self, entry: bytes, why: str) -> NoReturn:
        """Raise ImageError for one entry."""
        raise ImageError(
            f"{self.name}: the entry {file_name(entry)} {why}",
            remedy="do not use this image; ask its publisher to rebuild it",
        )

    def explain(self, error: OSError, entry: bytes) -> NoReturn:
        """Raise ImageError if the entry caused the error, else the error itself."""
        if error.errno in ENTRYS_FAULT:
            self.refuse(entry, f"cannot be unpacked: {os.strerror(error.errno or 0)}")
        raise error

    def _enter(self, folder: bytes, mtime_ns: int) -> None:
        """Make a directory of the layer the current one, creating it if missing. Symbolic links of this layer
        are followed inside the layer, as in a chroot."""
        real = folder if folder in self._real or not folder else self._resolve(folder, mtime_ns)
        prefix = real + b"/" if real else b""
        if prefix != self.prefix:
            descriptor = os.open(real or b".", FOLDER, dir_fd=self._root)
            os.close(self.here_fd)
            self.here_fd = descriptor
            self.prefix = prefix

    def _resolve(self, folder: bytes, mtime_ns: int | None) -> bytes:
        """The real path of a directory; missing ones are created, with the time of the entry that needs them.

        Without a time nothing is created: raises FileNotFoundError.
        """
        pending = folder.split(b"/")[::-1]
        real = b""
        followed = 0
        while pending:
            part = pending.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                real = real.rpartition(b"/")[0]
                continue
            step = real + b"/" + part if real else part
            self._walked_bytes += len(step)
            if self._walked_bytes > _WALK_BYTES + _WALK_BYTES_AN_ENTRY * self.entries:
                self.refuse(folder, "and earlier paths have more directories and links than allowed")
            if step in self._real:
                real = step
                continue
            try:
                state = os.lstat(step, dir_fd=self._root)
            except FileNotFoundError:
                if mtime_ns is None:
                    raise
                self.implied += 1
                if self.entries + self.implied > self.limits.max_entries:
                    raise too_many(self.name, self.limits) from None
                self._make_folder(step, 0o755, mtime_ns)
            else:
                if stat.S_ISLNK(state.st_mode):
                    followed += 1
                    if followed > 40:  # the kernel's own limit
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    target = os.readlink(step, dir_fd=self._root)
                    if target.startswith(b"/"):
                        real = b""
                    pending += target.split(b"/")[::-1]
                    continue
                if is_whiteout(state):
                    if mtime_ns is None:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                    os.unlink(step, dir_fd=self._root)
                    self.inodes -= 1
                    self._make_folder(step, 0o755, mtime_ns)
                    self._make_opaque(step)
                elif not stat.S_ISDIR(state.st_mode):
                    if mtime_ns is None:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                    self.refuse(
                        folder, f"lies below {file_name(step)}, which this layer did not make a directory"
                    )
            self._remember(step)
            real = step
        return real

    def _make_folder(self, path: bytes, mode: int, mtime_ns: int) -> None:
        os.mkdir(path, 0o700, dir_fd=self._root)
        if self.umask & 0o700:
            os.chmod(path, 0o700, dir_fd=self._root)
        self.inodes += 1
        self._stamps.add(path, mode, mtime_ns)

    def _remember(self, real: bytes) -> None:
        self._real_bytes += len(real) + 120
        if self._real_bytes > 24 * _MIB:  # the paths can be resolved again
            self._real.clear()
            self._real_bytes = 0
        self._real.add(real)

    def clear(self, path: bytes) -> bool:
        """Remove the entry that already has this name; whether it was a whiteout. Raises ImageError if the
        names differ in case only and the file system ignores case."""
        self.here = None
        if self._tells_case is None:
            self._tells_case = self._probe_case()
        parent, _, base = path.rpartition(b"/")
        if not self._tells_case:
            descriptor = os.open(parent or b".", FOLDER, dir_fd=self._root)
            try:
                names = os.listdir(descriptor)
            finally:
                os.close(descriptor)
            if os.fsdecode(base) not in names:
                self.refuse(path, "differs from another only in case, and this file system takes them as one")
        state = os.lstat(path, dir_fd=self._root)
        if stat.S_ISDIR(state.st_mode):
            self._remove_tree(path)
        else:
            self._remove(path, state)
        return is_whiteout(state)

    def _probe_case(self) -> bool:
        name = ".bareboat-case"
        os.close(os.open(name, NEW_FILE, 0o600, dir_fd=self._root))
        try:
            os.lstat(name.upper(), dir_fd=self._root)
        except FileNotFoundError:
            return True
        finally:
            os.unlink(name, dir_fd=self._root)
        return False

    def _remove(self, path: bytes, state: os.stat_result) -> None:
        if stat.S_ISREG(state.st_mode) and self.recorder is not None:
            self.recorder.replaced(path, self._root)
        os.unlink(path, dir_fd=self._root)
        if state.st_nlink == 1:
            self.inodes -= 1
            if stat.S_ISREG(state.st_mode):
                self.unpacked_bytes -= state.st_size

    def _remove_tree(self, top: bytes) -> None:
        folders = [top]
        for folder in folders:  # grows during the loop
            descriptor = os.open(folder, FOLDER, dir_fd=self._root)
            try:
                with os.scandir(descriptor) as found:
                    for child in found:
                        path = folder + b"/" + os.fsencode(child.name)
                        state = os.lstat(path, dir_fd=self._root)
                        if stat.S_ISDIR(state.st_mode):
                            folders.append(path)
                        else:
                            self._remove(path, state)
            finally:
                os.close(descriptor)
        for folder in reversed(folders):
            os.rmdir(folder, dir_fd=self._root)
            self.inodes -= 1
        self._forget_folders()

    def _forget_folders(self) -> None:
        self._real.clear()
        self._real_bytes = 0

    def _make_opaque(self, real: bytes) -> None:
        if not real:  # overlayfs always merges the roots of layers
            self.stackable = False
        descriptor = os.open(real or b".", FOLDER, dir_fd=self._root)
        try:
            os.setxattr(descriptor, OPAQUE_XATTR, b"y")
        except OSError as error:
            if error.errno in FULL:
                raise
            self._mark(real + b"/" + OPAQUE if real else OPAQUE)
        finally:
            os.close(descriptor)

    def _mark(self, path: bytes) -> None:
        """Create a marker file as in the tar: the layer is then usable for a flat tree only."""
        self.stackable = False
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, NEW_FILE, 0o600, dir_fd=self._root))
            self.inodes += 1

    def finish(self) -> None:
        """Set the modes and times of the directories, once all entries are written."""
        if not self._root_stamped:
            self._stamps.add(b"", 0o755, 0)
        # Usually a directory follows its parent: then it is one step away, at any depth.
        last, last_fd = b"", os.dup(self._root)
        try:
            for path, mode, mtime_ns in self._stamps:
                parent, _, base = path.rpartition(b"/")
                try:
                    if parent and parent == last:
                        descriptor = os.open(base, FOLDER, dir_fd=last_fd)
                    elif parent and parent not in self._real and not self._is_real(parent):
                        continue  # a later entry replaced it
                    else:
                        descriptor = os.open(path or b".", FOLDER, dir_fd=self._root)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    if error.errno == errno.ELOOP:  # O_NOFOLLOW rejected a symbolic link
                        continue
                    raise
                os.close(last_fd)
                last, last_fd = path, descriptor
                os.fchmod(descriptor, mode)
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(last_fd)

    def _is_real(self, folder: bytes) -> bool:
        try:
            real = self._resolve(folder, None)
        except OSError:
            return False
        return real == folder


def _umask(folder: Path) -> int:
    """The mode bits that may be missing on a new file in the directory. The umask is read from /proc, since
    setting it would affect other threads; a default ACL replaces the umask (acl(5)) and may remove any
    bit."""
    with contextlib.suppress(OSError):
        os.getxattr(folder, "system.posix_acl_default")
        return 0o777
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as stream:
        for line in stream:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o777  # unknown: every mode is then set explicitly
