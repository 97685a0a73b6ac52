"""The tree of an unpacked layer: applies each entry of its tar.

The tree is what an overlay mount requires (see `whiteouts`). Where the file system does not support that,
the tar's own marker files stay, and the layer is not stackable.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import NoReturn

from isal import isal_zlib

from bareboat_base.printable import file_name
from bareboat_images.layers.copies import FOLDER, NO_LINK, copy_entry, tree_mode
from bareboat_images.layers.folders import ENTRYS_FAULT, FULL, Folders
from bareboat_images.layers.whiteouts import AUFS, OPAQUE, OVERLAY_XATTRS, WHITEOUT, is_whiteout
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar.limits import RATIO_FROM_BYTES, Limits, bomb, too_large
from bareboat_images.tar.reader import Entry, Tar

#: The least disk space of a piece of a sparse file.
_PIECE_BYTES = 4096


class Tree(Folders):
    """The directory that is filled, entry by entry, and what was omitted or changed."""

    def __init__(self, folder: Path, name: str, limits: Limits) -> None:
        super().__init__(folder, name, limits)
        #: Bytes written beyond those of the tar: copies, and the blocks of sparse files' pieces.
        self._beyond_bytes = 0
        #: Of a file with the maximum number of links: the copy to which further names are linked.
        self._copies: dict[tuple[int, int], bytes] = {}
        self._left_out: set[bytes] = set()
        self._notes: dict[str, list[bytes]] = {}
        self._counts: dict[str, int] = {}

    def place(self, entry: Entry, tar: Tar) -> bytes | None:
        """For a file, enter its directory and return its name there; else process the entry and return
        None."""
        name, kind = entry.name, entry.kind
        if name[:2] == b"./":
            name = name[2:]
        if kind == tarreader.FOLDER:
            name = name.rstrip(b"/")
        # True for all but plain names separated by single slashes.
        if name[:1] in b"./" or b"/." in name or b"//" in name or name[-1:] == b"/":
            inside = self._normalise(entry.name)
            if inside is None:
                tar.skip(entry.size)
                return None
            name = inside
        folder, _, base = name.rpartition(b"/")
        if base.startswith(WHITEOUT):
            self._hide(folder, base, entry.mtime_ns)
            tar.skip(entry.size)
            return None
        if kind != tarreader.FILE:
            self._write_other(entry, name, tar)
            return None
        if not base:
            self.refuse(entry.name, "has no name")
        self._enter(folder, entry.mtime_ns)
        written, _, last = entry.name.rpartition(b"/")
        self.here = written if last == base else None
        return base

    def _normalise(self, name: bytes) -> bytes | None:
        """A name without `.`, `..` and empty parts; None for a name reserved by aufs."""
        parts: list[bytes] = []
        for part in name.split(b"/"):
            if part == b"..":
                if not parts:
                    self.refuse(name, "leads out of the image")
                parts.pop()
            elif part not in (b"", b"."):
                parts.append(part)
        for part in parts[:-1]:
            if part.startswith(AUFS):
                return None
            if part.startswith(WHITEOUT):
                self.refuse(name, "lies below a whiteout")
        return b"/".join(parts)

    def _write_other(self, entry: Entry, path: bytes, tar: Tar) -> None:
        """Create an entry that is not a regular file."""
        kind, mtime_ns = entry.kind, entry.mtime_ns
        if kind == tarreader.FOLDER:
            self._write_folder(entry, path)
            return
        if kind in (tarreader.CHARACTER, tarreader.BLOCK_DEVICE):
            self._note("device nodes were left out, which only root can make", path)
            if len(self._left_out) < 1000:
                self._left_out.add(path)
            return
        if kind == tarreader.VOLUME:
            return
        folder, _, base = path.rpartition(b"/")
        if not base:
            self.refuse(entry.name, "has no name")
        self._enter(folder, mtime_ns)
        self.here = None
        if kind == tarreader.LINK:
            self._write_link(entry, path, tar)
            return
        real = self.prefix + base
        if kind == tarreader.SYMLINK and not entry.link:
            self.refuse(entry.name, "is a symbolic link to nothing")
        try:
            self._make(entry, base)
        except FileExistsError:
            self.clear(real)
            self._make(entry, base)
        self.inodes += 1
        os.utime(base, ns=(mtime_ns, mtime_ns), dir_fd=self.here_fd, follow_symlinks=False)
        if entry.xattrs:
            self._note("extended attributes could not be kept on links and pipes", path)

    def _make(self, entry: Entry, base: bytes) -> None:
        if entry.kind == tarreader.SYMLINK:
            os.symlink(entry.link, base, dir_fd=self.here_fd)
        else:
            permissions = entry.mode & 0o777 | 0o600
            os.mkfifo(base, permissions, dir_fd=self.here_fd)
            if permissions & self.umask:
                os.chmod(base, permissions, dir_fd=self.here_fd)

    def _write_folder(self, entry: Entry, path: bytes) -> None:
        mode = tree_mode(entry.mode, is_folder=True)
        if not path:
            self._root_stamped = True
            # Only a directory that its owner may write to can get another parent directory.
            self._stamps.add(b"", mode | 0o700, entry.mtime_ns)
            real = b""
        else:
            parent, _, base = path.rpartition(b"/")
            if parent and parent not in self._real:
                parent = self._resolve(parent, entry.mtime_ns)
            real = parent + b"/" + base if parent else base
            try:
                self._make_folder(real, mode, entry.mtime_ns)
            except FileExistsError:
                if real in self._real or stat.S_ISDIR(os.lstat(real, dir_fd=self._root).st_mode):
                    self._stamps.add(real, mode, entry.mtime_ns)
                else:
                    hidden = self.clear(real)
                    self._make_folder(real, mode, entry.mtime_ns)
                    if hidden:  # hides the directory's content in the layers below
                        self._make_opaque(real)
            self._remember(real)
        if entry.xattrs:
            descriptor = os.open(real or b".", FOLDER, dir_fd=self._root)
            try:
                self.set_xattrs(descriptor, entry.xattrs)
            finally:
                os.close(descriptor)

    def _write_link(self, entry: Entry, path: bytes, tar: Tar) -> None:
        """Create a hard link to a file of this layer. Symbolic links in the path are followed inside the
        layer, except for the last component."""
        base = path.rpartition(b"/")[2]
        aim = self._normalise(entry.link)
        if not aim:
            self.refuse(entry.name, f"is a hard link to {file_name(entry.link)}, which is no file")
        folder, _, name = aim.rpartition(b"/")
        try:
            if folder and folder not in self._real:
                folder = self._resolve(folder, None)
            source = folder + b"/" + name if folder else name
            state = os.lstat(source, dir_fd=self._root)
            if is_whiteout(state):
                raise FileNotFoundError
        except FileNotFoundError:
            if aim in self._left_out:
                self._note("device nodes were left out, which only root can make", path)
                return
            self._refuse_link(entry)
        if stat.S_ISDIR(state.st_mode):
            self.refuse(entry.name, f"is a hard link to the directory {file_name(aim)}")
        real = self.prefix + base
        if real == source:
            return
        copied = False
        try:
            copied = self._link(source, base)
        except FileExistsError:
            self.clear(real)
            try:
                copied = self._link(source, base)
            except FileNotFoundError:  # the target was in the directory that had this name
                self._refuse_link(entry)
        if copied:
            self._note("hard links became copies, as the file system refuses them", path)
        if stat.S_ISREG(state.st_mode) and self.recorder is not None:
            self.recorder.link(tar.literal(), real)

    def _refuse_link(self, entry: Entry) -> NoReturn:
        self.refuse(entry.name, f"is a hard link to {file_name(entry.link)}, which this layer does not have")

    def _link(self, source: bytes, base: bytes) -> bool:
        """Link, or copy if refused; whether it was copied. Raises ImageError when the copies become too
        large."""
        try:
            os.link(source, base, src_dir_fd=self._root, dst_dir_fd=self.here_fd, follow_symlinks=False)
            return False
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            is_full = error.errno == errno.EMLINK
        state = os.lstat(source, dir_fd=self._root)
        identity = (state.st_dev, state.st_ino)
        if identity in self._copies:
            path = self._copies[identity]
            with contextlib.suppress(OSError):
                os.link(path, base, src_dir_fd=self._root, dst_dir_fd=self.here_fd, follow_symlinks=False)
                return True
        if self.unpacked_bytes + state.st_size > self.limits.max_unpacked_bytes:
            raise too_large(self.name, self.limits, self.prefix + base)
        self._count_beyond(max(state.st_blocks * 512, _PIECE_BYTES))
        self.unpacked_bytes += copy_entry(self._root, source, self.here_fd, base)
        self.inodes += 1
        if is_full:
            self._copies[identity] = self.prefix + base
        return True

    def _count_beyond(self, size: int) -> None:
        """Count bytes written that were not in the tar. Raises ImageError beyond the allowed ratio."""
        self._beyond_bytes += size
        packed_bytes = self.packed_bytes()
        if self._beyond_bytes > max(RATIO_FROM_BYTES, self.limits.max_ratio * packed_bytes):
            raise bomb(self.name, self.limits.max_ratio, packed_bytes, self._beyond_bytes)

    def _remove(self, path: bytes, state: os.stat_result) -> None:
        super()._remove(path, state)
        if self._copies:  # a new file may get the same inode number
            if state.st_nlink == 1:
                self._copies.pop((state.st_dev, state.st_ino), None)
            for identity in [each for each, copied in self._copies.items() if copied == path]:
                del self._copies[identity]

    def _forget_folders(self) -> None:
        super()._forget_folders()
        self._copies.clear()  # the path to a copy may have changed

    def write_sparse(self, out: int, sparse: tarreader.Sparse, tar: Tar, literal: bytes, base: bytes) -> None:
        """Write the pieces of a sparse file at their offsets; holes stay holes."""
        self.unpacked_bytes += sparse.size
        if self.unpacked_bytes > self.limits.max_unpacked_bytes:
            raise too_large(self.name, self.limits, self.prefix + base)
        first = True
        spans = sparse.spans
        self._count_beyond(_PIECE_BYTES * (len(spans) // 2))
        for at in range(0, len(spans), 2):
            position, left, crc = spans[at], spans[at + 1], 0
            if not left:
                continue
            offset, length = position, left
            while left:
                view = tar.take(left)
                crc = isal_zlib.crc32(view, crc)
                left -= len(view)
                while view:
                    done = os.pwrite(out, view, position)
                    position += done
                    view = view[done:]
            if self.recorder is not None:
                if first:
                    self.recorder.first(literal, self.prefix + base, offset, length, crc)
                else:
                    self.recorder.further(offset, length, crc)
                first = False
        if first and self.recorder is not None:
            self.recorder.first(literal, self.prefix + base, 0, 0, 0)
        os.ftruncate(out, sparse.size)

    def set_xattrs(self, descriptor: int, xattrs: tuple[tuple[bytes, bytes], ...]) -> None:
        """Set `user.*` attributes; the others are privileges, which an unprivileged user cannot set."""
        for key, value in xattrs:
            if not key.startswith(b"user.") or key.startswith(OVERLAY_XATTRS):
                self._note("extended attributes were left out that are not a user's to set", key)
                continue
            try:
                os.setxattr(descriptor, key, value)
            except OSError as error:
                # ext4 also returns ENOSPC for a value that is too long.
                if error.errno in (errno.EDQUOT, errno.EIO, errno.EROFS):
                    raise
                self._note("extended attributes were refused by the file system", key)
            except ValueError:  # a zero byte in the name
                self._note("extended attributes were refused by the file system", key)

    def _hide(self, folder: bytes, base: bytes, mtime_ns: int) -> None:
        """Apply a whiteout, or the mark of an opaque directory. Only the layers below are affected: this
        layer's own entries, earlier or later, stay."""
        hidden = base[len(WHITEOUT) :]
        if base != OPAQUE and base.startswith(AUFS):
            return
        if hidden in (b"", b".", b".."):
            self.refuse(folder + b"/" + base if folder else base, "is a whiteout of what is no entry")
        real = folder if not folder or folder in self._real else self._resolve(folder, mtime_ns)
        if base == OPAQUE:
            self._make_opaque(real)
            return
        path = real + b"/" + hidden if real else hidden
        try:
            # Since Linux 5.8 any user may create this one device: it opens nothing.
            os.mknod(path, stat.S_IFCHR, 0, dir_fd=self._root)
            self.inodes += 1
        except FileExistsError:
            if stat.S_ISDIR(os.lstat(path, dir_fd=self._root).st_mode):
                self._make_opaque(path)
        except OSError as error:
            if error.errno in FULL or error.errno in ENTRYS_FAULT - {errno.EINVAL}:
                raise
            self._mark(real + b"/" + base if real else base)

    def notes(self) -> tuple[str, ...]:
        """What was omitted or changed, one line each."""
        lines = []
        for what, names in self._notes.items():
            count = self._counts[what]
            more = f", … ({count:,} in all)" if count > len(names) else ""
            lines.append(f"{what}: " + ", ".join(map(file_name, names)) + more)
        return tuple(lines)

    def _note(self, what: str, name: bytes) -> None:
        names = self._notes.setdefault(what, [])
        if name in names:
            return
        self._counts[what] = self._counts.get(what, 0) + 1
        if len(names) < 8:
            names.append(name)
