"""Unpacks one layer: compressed bytes in, a tree of files out, nothing outside it.

Three threads share the work, and the interpreter's lock hardly matters, since each spends its time where it
is released: one inflates, one hashes the tar, and the caller's reads the tar and writes the files.

The tree is what an overlay mount wants: a whiteout becomes a character device 0:0, an opaque folder gets
`user.overlay.opaque` (bwrap mounts with `userxattr`). Where the file system refuses either, the tar's own
marker files stay, and the layer is not stackable.
https://docs.kernel.org/filesystems/overlayfs.html#whiteouts-and-opaque-directories
https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import queue
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from isal import isal_zlib

from fairlead.errors import ImageError
from fairlead.images.layers import recipe as recipes
from fairlead.images.layers import tarstream
from fairlead.images.layers.limits import Limits
from fairlead.images.layers.tarstream import Entry, Tar, shown

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
#: aufs kept its own affairs under names that begin so.
_AUFS = b".wh..wh."
OPAQUE_XATTR = b"user.overlay.opaque"
#: What overlayfs reads as orders of its own: no layer may give them.
_OVERLAY_XATTRS = b"user.overlay."

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """What was unpacked. `diff_id`: the digest of the whole uncompressed stream, `tar_bytes` its length;
    `unpacked_bytes`: the sizes of all files; `stackable`: overlayfs shows it as it should;
    `rebuildable`: the recipe gives the same tar again."""

    diff_id: str
    tar_bytes: int
    unpacked_bytes: int
    inodes: int
    stackable: bool
    rebuildable: bool
    notes: tuple[str, ...]


def unpack(
    chunks: Iterator[bytes | memoryview],
    folder: Path,
    *,
    name: str,
    limits: Limits,
    recipe: Path | None,
) -> Unpacked:
    """Unpack a layer (gzip, zstd or plain tar) into an empty folder that nobody else writes to.

    `chunks` is consumed in a thread of ours; what it raises is raised here. `name` is what messages call
    the layer. With `recipe`, a file is made there from which `recipe.rebuild` writes the same tar again.

    Raises ImageError for a layer that is damaged, hostile or over a limit, with the entry's name; OSError
    for what the file system refuses, such as a full disk. What was made so far is left to the caller.
    """
    tree = _Tree(folder, name, limits)
    try:
        recorder = None if recipe is None else recipes.Recorder(recipe)
        try:
            flow = _Flow(chunks, name, limits)
            try:
                tar = Tar(flow.next, _nothing if recorder is None else recorder.literal, name=name)
                _write_entries(tar, tree, recorder)
                if recorder is not None:
                    recorder.literal(tar.literal())
                diff_id = flow.finish()
            finally:
                flow.stop()
            tree.finish()
            rebuildable = recorder is not None and recorder.close()
        finally:
            if recorder is not None:
                recorder.abandon()
    finally:
        tree.close()
    return Unpacked(
        diff_id=diff_id,
        tar_bytes=flow.out_bytes,
        unpacked_bytes=tree.unpacked_bytes,
        inodes=tree.inodes,
        stackable=tree.stackable,
        rebuildable=rebuildable,
        notes=tree.notes(),
    )


def _nothing(_data: bytes) -> None:
    pass


# --------------------------------------------------------------------------------------------------
# Threads.

#: Blocks under way to each of two threads.
_QUEUED = 12
#: Blocks smaller than this are joined before they are handed on.
_SMALL_BYTES = 1 << 16
#: Before this, a ratio says nothing.
_RATIO_FROM_BYTES = 100_000_000
#: How long to wait for a source that gives nothing while we have given up.
_PATIENCE_S = 2.0


class _Flow:
    """Inflates in one thread and hashes in another. Neither touches the tree."""

    def __init__(self, chunks: Iterator[bytes | memoryview], name: str, limits: Limits) -> None:
        self._chunks = chunks
        self._name = name
        self._limits = limits
        self.in_bytes = 0
        self.out_bytes = 0
        self._stopped = False
        self._failure: BaseException | None = None
        self._blocks: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
        self._hashing: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
        self._digest = ""
        self._threads = (
            threading.Thread(target=self._inflate, name="inflate", daemon=True),
            threading.Thread(target=self._hash, name="hash", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def next(self) -> bytes | None:
        """The next uncompressed bytes, None at the end. Raises what the source or the inflater raised."""
        block = self._blocks.get()
        if block is None and self._failure is not None:
            raise self._failure
        return block

    def finish(self) -> str:
        """The digest (`sha256:…`) of all uncompressed bytes, when all have been read."""
        for thread in self._threads:
            thread.join()
        return self._digest

    def stop(self) -> None:
        """End the threads; one that waits for its source ends when that answers."""
        self._stopped = True
        deadline = time.monotonic() + _PATIENCE_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                self._blocks.get(timeout=0.02)

    def _inflate(self) -> None:
        try:
            small: list[bytes] = []
            small_bytes = 0
            for block in tarstream.inflate(self._counted(), name=self._name):
                self.out_bytes += len(block)
                self._check()
                if len(block) < _SMALL_BYTES:
                    small.append(block)
                    small_bytes += len(block)
                    if small_bytes < _SMALL_BYTES:
                        continue
                    block, small, small_bytes = b"".join(small), [], 0
                elif small:
                    self._hand_on(b"".join(small))
                    small, small_bytes = [], 0
                self._hand_on(block)
                if self._stopped:
                    return
            if small:
                self._hand_on(b"".join(small))
        except BaseException as error:
            self._failure = error
        finally:
            self._hashing.put(None)
            if not self._stopped:
                self._blocks.put(None)

    def _hand_on(self, block: bytes) -> None:
        if block:
            self._hashing.put(block)
            self._blocks.put(block)

    def _counted(self) -> Iterator[bytes | memoryview]:
        for chunk in self._chunks:
            self.in_bytes += len(chunk)
            yield chunk

    def _hash(self) -> None:
        hashed = hashlib.sha256()
        while (block := self._hashing.get()) is not None:
            hashed.update(block)
        self._digest = "sha256:" + hashed.hexdigest()

    def _check(self) -> None:
        if self.out_bytes > self._limits.max_unpacked_bytes:
            raise too_large(self._name, self._limits)
        if self.out_bytes > _RATIO_FROM_BYTES and self.out_bytes > self._limits.max_ratio * self.in_bytes:
            raise ImageError(
                f"{self._name} is a decompression bomb: {self.in_bytes / 1e6:,.1f} MB have inflated "
                f"to {self.out_bytes / 1e6:,.0f} MB so far",
                remedy=f"if you trust it: --max-ratio {10 * self._limits.max_ratio:.0f}",
            )


def too_large(name: str, limits: Limits, entry: bytes = b"") -> ImageError:
    """The error for a layer that unpacks, or claims to unpack, to more bytes than allowed."""
    allowed = limits.max_unpacked_bytes
    return ImageError(
        f"{name} unpacks to more than the {allowed:,} bytes allowed"
        + (f": the entry {shown(entry)} alone, or with those before it" if entry else ""),
        remedy=f"if you trust it: --max-unpacked {4 * allowed}",
    )


# --------------------------------------------------------------------------------------------------
# Writing.

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: What an entry itself is to blame for; all else is the file system's or the machine's affair.
_ENTRYS_FAULT = frozenset(
    {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ELOOP, errno.EFBIG, errno.ENOENT, errno.ENOTDIR}
)
#: What is no refusal of a whiteout, an attribute or a link, but of any more data.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def _write_entries(tar: Tar, tree: _Tree, recorder: recipes.Recorder | None) -> None:
    """The loop over all entries. What most of them are, plain files, is written here: calls cost."""
    max_entries = tree.limits.max_entries
    umask = tree.umask
    os_open, os_write, os_utime, os_close, crc32 = os.open, os.write, os.utime, os.close, isal_zlib.crc32
    take = tar.take
    tree.recorder = recorder
    literal = b""
    count = files = files_bytes = 0
    while (entry := tar.next()) is not None:
        kind, name, _, mode, size, mtime_ns, xattrs, sparse = entry
        count += 1
        if count > max_entries:
            raise ImageError(
                f"{tree.name} has more than the {max_entries:,} entries allowed",
                remedy=f"if you trust it: --max-entries {10 * max_entries}",
            )
        try:
            folder, _, base = name.rpartition(b"/")
            # A plain name where the last one was needs no further look; b"" is in every bytes.
            if folder != tree.here or base[:1] in b"." or kind != tarstream.FILE:
                found = tree.place(entry, tar)
                if found is None:
                    continue
                base = found
            permissions = mode & 0o777 | 0o400
            try:
                out = os_open(base, _NEW_FILE, permissions, dir_fd=tree.here_fd)
            except FileExistsError:
                tree.clear(tree.prefix + base)
                out = os_open(base, _NEW_FILE, permissions, dir_fd=tree.here_fd)
            files += 1
            try:
                if recorder is not None:
                    literal = tar.literal()
                crc = 0
                if sparse is not None:
                    tree.write_sparse(out, sparse, tar, literal, base)
                elif size:
                    left = size
                    while left:
                        view = take(left)
                        if recorder is not None:
                            crc = crc32(view, crc)
                        done = os_write(out, view)
                        left -= done
                        while done < len(view):
                            step = os_write(out, view[done:])
                            done += step
                            left -= step
                    files_bytes += size
                if xattrs:
                    os.fchmod(out, 0o600)  # attributes are set only on what may be written to
                    tree.set_xattrs(out, xattrs)
                if xattrs or permissions & umask:
                    os.fchmod(out, permissions)
                os_utime(out, ns=(mtime_ns, mtime_ns))
            finally:
                os_close(out)
            if recorder is not None and sparse is None:
                recorder.content(literal, tree.prefix + base, size, crc)
        except OSError as error:
            tree.explain(error, entry.name)
    tree.inodes += files
    tree.unpacked_bytes += files_bytes


class _Tree:
    """The folder that is filled, and what is known about it. All paths are bytes, relative to it."""

    def __init__(self, folder: Path, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.recorder: recipes.Recorder | None = None
        self.umask = _umask(folder)
        self.inodes = 1
        self.unpacked_bytes = 0
        self.stackable = True
        self._root = os.open(folder, _FOLDER)
        #: The folder that the last entry went to: as the layer writes it, its real path (with a slash, if not
        #: the root), and a descriptor.
        self.here: bytes | None = None
        self.prefix = b""
        self.here_fd = os.dup(self._root)
        #: Folders known to be real, and all above them: no symbolic link can lead out of these.
        self._real: set[bytes] = set()
        self._real_bytes = 0
        self._stamps = _Stamps()
        self._root_stamped = False
        self._tells_case: bool | None = None
        self._left_out: set[bytes] = set()
        self._notes: dict[str, list[bytes]] = {}
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        for descriptor in (self.here_fd, self._root):
            os.close(descriptor)

    # -- names -------------------------------------------------------------------------------------

    def place(self, entry: Entry, tar: Tar) -> bytes | None:
        """Go where a file belongs, return its name there; or do with the entry all that is to be done."""
        name, kind = entry.name, entry.kind
        if name[:2] == b"./":
            name = name[2:]
        if kind == tarstream.FOLDER:
            name = name.rstrip(b"/")
        # All that is not plain names between single slashes.
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
        if kind != tarstream.FILE:
            self._write_other(entry, name, tar)
            return None
        if not base:
            self.refuse(entry.name, "has no name")
        self._enter(folder, entry.mtime_ns)
        written, _, last = entry.name.rpartition(b"/")
        self.here = written if last == base else None
        return base

    def _normalise(self, name: bytes) -> bytes | None:
        """A name without `.`, `..` and empty parts; None for one that aufs kept for itself."""
        parts: list[bytes] = []
        for part in name.split(b"/"):
            if part == b"..":
                if not parts:
                    self.refuse(name, "leads out of the image")
                parts.pop()
            elif part not in (b"", b"."):
                parts.append(part)
        for part in parts[:-1]:
            if part.startswith(_AUFS):
                return None
            if part.startswith(WHITEOUT):
                self.refuse(name, "lies below a whiteout")
        return b"/".join(parts)

    def refuse(self, entry: bytes, why: str) -> NoReturn:
        """Raise ImageError for one entry."""
        raise ImageError(
            f"{self.name}: the entry {shown(entry)} {why}",
            remedy="do not use this image before its maker has mended it",
        )

    def explain(self, error: OSError, entry: bytes) -> NoReturn:
        """Raise ImageError where the entry is to blame, else the error."""
        if error.errno in _ENTRYS_FAULT:
            self.refuse(entry, f"cannot be unpacked: {os.strerror(error.errno or 0)}")
        raise error

    # -- folders -----------------------------------------------------------------------------------

    def _enter(self, folder: bytes, mtime_ns: int) -> None:
        """Make a folder of the layer the current one; also where symbolic links of this layer lead there
        (inside the layer, as in a chroot); it is made where it is missing."""
        real = folder if folder in self._real or not folder else self._resolve(folder, mtime_ns)
        prefix = real + b"/" if real else b""
        if prefix != self.prefix:
            descriptor = os.open(real or b".", _FOLDER, dir_fd=self._root)
            os.close(self.here_fd)
            self.here_fd = descriptor
            self.prefix = prefix

    def _resolve(self, folder: bytes, mtime_ns: int | None) -> bytes:
        """The real path of a folder; missing ones are made, with the time of the entry that needs them.

        With no time nothing is made: raises FileNotFoundError.
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
            if step in self._real:
                real = step
                continue
            try:
                state = os.lstat(step, dir_fd=self._root)
            except FileNotFoundError:
                if mtime_ns is None:
                    raise
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
                if _is_whiteout(state):
                    if mtime_ns is None:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                    os.unlink(step, dir_fd=self._root)
                    self.inodes -= 1
                    self._make_folder(step, 0o755, mtime_ns)
                    self._make_opaque(step)
                elif not stat.S_ISDIR(state.st_mode):
                    if mtime_ns is None:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                    self.refuse(folder, f"lies below {shown(step)}, which this layer did not make a folder")
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
        if self._real_bytes > 24 * _MIB:  # they can be found again
            self._real.clear()
            self._real_bytes = 0
        self._real.add(real)

    def clear(self, path: bytes) -> bool:
        """Remove what an earlier entry made here; whether that was a whiteout. Raises ImageError where it
        is another name in a file system that does not tell upper from lower case."""
        self.here = None
        if self._tells_case is None:
            self._tells_case = self._probe_case()
        parent, _, base = path.rpartition(b"/")
        if not self._tells_case:
            descriptor = os.open(parent or b".", _FOLDER, dir_fd=self._root)
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
        return _is_whiteout(state)

    def _probe_case(self) -> bool:
        name = ".fairlead-case"
        os.close(os.open(name, _NEW_FILE, 0o600, dir_fd=self._root))
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
        for folder in folders:  # grows while it is walked
            descriptor = os.open(folder, _FOLDER, dir_fd=self._root)
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
        self._real.clear()
        self._real_bytes = 0

    # -- entries -----------------------------------------------------------------------------------

    def _write_other(self, entry: Entry, path: bytes, tar: Tar) -> None:
        """Make what is no plain file."""
        kind, mtime_ns = entry.kind, entry.mtime_ns
        if kind == tarstream.FOLDER:
            self._write_folder(entry, path)
            return
        if kind in (tarstream.CHARACTER, tarstream.BLOCK_DEVICE):
            self._note("device nodes were left out, which only root can make", path)
            if len(self._left_out) < 1000:
                self._left_out.add(path)
            return
        if kind == tarstream.VOLUME:
            return
        folder, _, base = path.rpartition(b"/")
        if not base:
            self.refuse(entry.name, "has no name")
        self._enter(folder, mtime_ns)
        self.here = None
        if kind == tarstream.LINK:
            self._write_link(entry, path, tar)
            return
        real = self.prefix + base
        if kind == tarstream.SYMLINK and not entry.link:
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
        if entry.kind == tarstream.SYMLINK:
            os.symlink(entry.link, base, dir_fd=self.here_fd)
        else:
            permissions = entry.mode & 0o777 | 0o600
            os.mkfifo(base, permissions, dir_fd=self.here_fd)
            if permissions & self.umask:
                os.chmod(base, permissions, dir_fd=self.here_fd)

    def _write_folder(self, entry: Entry, path: bytes) -> None:
        # Group and others as the layer has it; the owner must be able to remove it again.
        mode = entry.mode & 0o1777 | 0o700
        if not path:
            self._root_stamped = True
            self._stamps.add(b"", mode, entry.mtime_ns)
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
                    if hidden:  # what the layers below have there stays hidden
                        self._make_opaque(real)
            self._remember(real)
        if entry.xattrs:
            descriptor = os.open(real or b".", _FOLDER, dir_fd=self._root)
            try:
                self.set_xattrs(descriptor, entry.xattrs)
            finally:
                os.close(descriptor)

    def _write_link(self, entry: Entry, path: bytes, tar: Tar) -> None:
        """A hard link to what this layer has made. Symbolic links on the way are followed inside the layer,
        the last name is not."""
        base = path.rpartition(b"/")[2]
        aim = self._normalise(entry.link)
        if not aim:
            self.refuse(entry.name, f"is a hard link to {shown(entry.link)}, which is no file")
        folder, _, name = aim.rpartition(b"/")
        try:
            if folder and folder not in self._real:
                folder = self._resolve(folder, None)
            source = folder + b"/" + name if folder else name
            state = os.lstat(source, dir_fd=self._root)
            if _is_whiteout(state):
                raise FileNotFoundError
        except FileNotFoundError:
            if aim in self._left_out:
                self._note("device nodes were left out, which only root can make", path)
                return
            self._refuse_link(entry)
        if stat.S_ISDIR(state.st_mode):
            self.refuse(entry.name, f"is a hard link to the folder {shown(aim)}")
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
            except FileNotFoundError:  # it was in the folder that had this name
                self._refuse_link(entry)
        if copied:
            self._note("hard links became copies, as the file system refuses them", path)
        if stat.S_ISREG(state.st_mode) and self.recorder is not None:
            self.recorder.link(tar.literal(), real)

    def _refuse_link(self, entry: Entry) -> NoReturn:
        self.refuse(entry.name, f"is a hard link to {shown(entry.link)}, which this layer does not have")

    def _link(self, source: bytes, base: bytes) -> bool:
        """Link, or copy where that is refused; whether it was copied."""
        try:
            os.link(source, base, src_dir_fd=self._root, dst_dir_fd=self.here_fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            self.unpacked_bytes += copy_entry(self._root, source, self.here_fd, base)
            self.inodes += 1
            return True
        return False

    def write_sparse(self, out: int, sparse: tarstream.Sparse, tar: Tar, literal: bytes, base: bytes) -> None:
        """Write the pieces of a sparse file where they belong; holes stay holes."""
        self.unpacked_bytes += sparse.size
        if self.unpacked_bytes > self.limits.max_unpacked_bytes:
            raise too_large(self.name, self.limits, self.prefix + base)
        first = True
        spans = sparse.spans
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
        """Set the attributes that belong to users; the others are rights, which nobody can hand on here."""
        for key, value in xattrs:
            if not key.startswith(b"user.") or key.startswith(_OVERLAY_XATTRS):
                self._note("extended attributes were left out that are not a user's to set", key)
                continue
            try:
                os.setxattr(descriptor, key, value)
            except OSError as error:
                # ENOSPC is also what ext4 says to a value that is too long.
                if error.errno in (errno.EDQUOT, errno.EIO, errno.EROFS):
                    raise
                self._note("extended attributes were refused by the file system", key)
            except ValueError:  # a zero byte in the name
                self._note("extended attributes were refused by the file system", key)

    # -- whiteouts ---------------------------------------------------------------------------------

    def _hide(self, folder: bytes, base: bytes, mtime_ns: int) -> None:
        """A whiteout, or the mark of an opaque folder. It speaks of the layers below only: what this layer
        itself has there, before or after, stays."""
        hidden = base[len(WHITEOUT) :]
        if base != OPAQUE and base.startswith(_AUFS):
            return
        if hidden in (b"", b".", b".."):
            self.refuse(folder + b"/" + base if folder else base, "is a whiteout of what is no entry")
        real = folder if not folder or folder in self._real else self._resolve(folder, mtime_ns)
        if base == OPAQUE:
            self._make_opaque(real)
            return
        path = real + b"/" + hidden if real else hidden
        try:
            # Linux lets everybody make this one device since 5.8: it opens nothing.
            os.mknod(path, stat.S_IFCHR, 0, dir_fd=self._root)
            self.inodes += 1
        except FileExistsError:
            if stat.S_ISDIR(os.lstat(path, dir_fd=self._root).st_mode):
                self._make_opaque(path)
        except OSError as error:
            if error.errno in _FULL or error.errno in _ENTRYS_FAULT - {errno.EINVAL}:
                raise
            self._mark(real + b"/" + base if real else base)

    def _make_opaque(self, real: bytes) -> None:
        if not real:  # overlayfs merges the roots of layers, whatever they say
            self.stackable = False
        descriptor = os.open(real or b".", _FOLDER, dir_fd=self._root)
        try:
            os.setxattr(descriptor, OPAQUE_XATTR, b"y")
        except OSError as error:
            if error.errno in _FULL:
                raise
            self._mark(real + b"/" + OPAQUE if real else OPAQUE)
        finally:
            os.close(descriptor)

    def _mark(self, path: bytes) -> None:
        """Keep a marker as the tar has it: only a flat tree can be made of this layer."""
        self.stackable = False
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, _NEW_FILE, 0o600, dir_fd=self._root))
            self.inodes += 1

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Give the folders their modes and times, now that nothing is put into them any more."""
        if not self._root_stamped:
            self._stamps.add(b"", 0o755, 0)
        for path, mode, mtime_ns in self._stamps:
            parent = path.rpartition(b"/")[0]
            if parent and parent not in self._real and not self._is_real(parent):
                continue  # a later entry put something else in its place
            try:
                descriptor = os.open(path or b".", _FOLDER, dir_fd=self._root)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if error.errno == errno.ELOOP:  # O_NOFOLLOW met a symbolic link
                    continue
                raise
            try:
                os.fchmod(descriptor, mode)
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            finally:
                os.close(descriptor)

    def _is_real(self, folder: bytes) -> bool:
        try:
            real = self._resolve(folder, None)
        except OSError:
            return False
        return real == folder

    def notes(self) -> tuple[str, ...]:
        """What was left out or changed, one line each."""
        lines = []
        for what, names in self._notes.items():
            count = self._counts[what]
            more = f", … ({count:,} in all)" if count > len(names) else ""
            lines.append(f"{what}: " + ", ".join(map(shown, names)) + more)
        return tuple(lines)

    def _note(self, what: str, name: bytes) -> None:
        names = self._notes.setdefault(what, [])
        if name in names:
            return
        self._counts[what] = self._counts.get(what, 0) + 1
        if len(names) < 8:
            names.append(name)


class _Stamps:
    """Modes and times of folders, for the end: kept compressed, as a layer may have a million."""

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
        """In the order in which they came: the last one of a folder holds."""
        for data in (*map(isal_zlib.decompress, self._packed), bytes(self._open)):
            pos = 0
            while pos < len(data):
                length, mode, mtime_ns = self._RECORD.unpack_from(data, pos)
                pos += self._RECORD.size + length
                yield data[pos - length : pos], mode, mtime_ns


def copy_entry(source_fd: int, source: bytes, target_fd: int, target: bytes) -> int:
    """Copy a file (holes stay holes), a symbolic link or a pipe, with mode, times and the user's attributes;
    return its size in bytes if it is a file."""
    state = os.lstat(source, dir_fd=source_fd)
    times = (state.st_mtime_ns, state.st_mtime_ns)
    if not stat.S_ISREG(state.st_mode):
        if stat.S_ISLNK(state.st_mode):
            os.symlink(os.readlink(source, dir_fd=source_fd), target, dir_fd=target_fd)
        else:
            os.mkfifo(target, stat.S_IMODE(state.st_mode), dir_fd=target_fd)
        os.utime(target, ns=times, dir_fd=target_fd, follow_symlinks=False)
        return 0
    given = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source_fd)
    try:
        made = os.open(target, _NEW_FILE, 0o600, dir_fd=target_fd)
        try:
            _copy_data(given, made, state.st_size)
            for key in os.listxattr(given):
                if key.startswith("user."):
                    with contextlib.suppress(OSError):
                        os.setxattr(made, key, os.getxattr(given, key))
            os.fchmod(made, stat.S_IMODE(state.st_mode))
            os.utime(made, ns=times)
        finally:
            os.close(made)
    finally:
        os.close(given)
    return state.st_size


def _copy_data(given: int, made: int, size: int) -> None:
    position = 0
    while position < size:
        try:
            position = os.lseek(given, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                break
            raise
        stop = os.lseek(given, position, os.SEEK_HOLE)
        while position < stop and (data := os.pread(given, min(_MIB, stop - position), position)):
            view = memoryview(data)
            while view:
                done = os.pwrite(made, view, position)
                position += done
                view = view[done:]
    os.ftruncate(made, size)


def _is_whiteout(state: os.stat_result) -> bool:
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == 0


def _umask(folder: Path) -> int:
    """What a mode may lose when something is made in the folder. The umask is read without setting it, which
    other threads would feel; a default access list, which takes its place (acl(5)), may take anything."""
    with contextlib.suppress(OSError):
        os.getxattr(folder, "system.posix_acl_default")
        return 0o777
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as stream:
        for line in stream:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o777  # unknown: every mode is then set by itself
