"""Turn a directory with the changes of one step into a layer of the store. Its tar is hashed, not written.

The tar has owners, setuid bits and whiteout names, which the tree cannot have. They are in a recipe
(`layers.recipe`) next to the tree, from which push and convert write the same tar, bit for bit.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from isal import isal_zlib
from msgspec import Struct, field

from bareboat_base import digests
from bareboat_base.errors import ImageError
from bareboat_base.files import untrusted
from bareboat_base.printable import file_name
from bareboat_images.builder.metadata import Metadata, metadata
from bareboat_images.builder.places import Owner
from bareboat_images.layers import tar_split as recipes
from bareboat_images.layers.copies import tree_mode
from bareboat_images.layers.whiteouts import (
    OPAQUE,
    OPAQUE_XATTR,
    OVERLAY_XATTRS,
    WHITEOUT,
    is_opaque,
    is_whiteout,
)
from bareboat_images.model import StoredLayer
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar import writer as tarwriter
from bareboat_images.tar.limits import is_mostly_holes

_CHUNK = 1 << 20
_CAPABILITY = "security.capability"
#: struct vfs_ns_cap_data is vfs_cap_data followed by the uid of a namespace's root.
_CAP_REVISION_2, _CAP_REVISION_3, _CAP_MASK = 0x02000000, 0x03000000, 0xFF000000
#: https://peps.python.org/pep-0552/: magic, flags, time and size of the source
_PYC = struct.Struct("<4sIII")


class Rules(Struct, frozen=True, kw_only=True):
    """How the tar describes files. `owner`: path in the layer -> owner; `mode`: path of a directory and its
    mode in the tree -> its mode; `newest`: later times are replaced by this one, in seconds since 1970; None
    keeps all times; `check` raises when the build was stopped."""

    owner: Callable[[bytes], Owner] = lambda _path: (0, 0)
    mode: Callable[[bytes, int], int] = lambda _path, mode: mode
    newest: int | None = None
    check: Callable[[], None] = lambda: None


class _Entry(Struct):
    path: bytes
    state: os.stat_result
    mtime: int
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    is_opaque: bool = False
    children: list[_Entry] = field(default_factory=list)


def finish(made: Path, rules: Rules) -> tuple[StoredLayer, Mapping[bytes, Metadata]]:
    """Make the tree `made/tree` a layer: write `made/recipe`, and set modes and times in the tree as
    unpacking the tar would. Returns the layer's facts and what its tree cannot have. Raises OSError, and
    ImageError for files that a layer cannot hold."""
    tree = os.fsencode(made / "tree")
    entries = list(_entries(tree, rules))
    if rules.newest is not None:
        _restamp(tree, entries, rules.newest)
    writer = _Writer(tree, made / "recipe", rules.check)
    try:
        for entry in entries:
            writer.add(entry, rules)
        facts = writer.finish()
    finally:
        writer.close()
    for entry in reversed(entries):  # adding to a directory changes its time
        full = os.path.join(tree, entry.path)
        if stat.S_ISDIR(entry.state.st_mode):
            mode = tree_mode(entry.state.st_mode, is_folder=True)
            os.chmod(full, mode if entry.path else mode | 0o700)
        elif stat.S_ISREG(entry.state.st_mode):
            mode = tree_mode(entry.state.st_mode, is_folder=False)
            if mode != stat.S_IMODE(entry.state.st_mode):
                os.chmod(full, mode)
        if not is_whiteout(entry.state):
            os.utime(full, ns=(entry.mtime * 10**9, entry.mtime * 10**9), follow_symlinks=False)
    return facts, writer.metadata


def _entries(tree: bytes, rules: Rules) -> Iterator[_Entry]:
    """All entries of the tree, parents first, in byte order of the names."""
    pending = [b""]
    while pending:
        path = pending.pop()
        full = os.path.join(tree, path) if path else tree
        state = os.lstat(full)
        if stat.S_ISDIR(state.st_mode):
            if stat.S_IMODE(state.st_mode) & 0o700 != 0o700:
                os.chmod(full, stat.S_IMODE(state.st_mode) | 0o700)
            names = sorted(os.listdir(full), reverse=True)
            pending += [path + b"/" + name if path else name for name in names]
        elif stat.S_ISREG(state.st_mode) and not state.st_mode & stat.S_IRUSR:
            os.chmod(full, stat.S_IMODE(state.st_mode) | 0o400)
        if stat.S_ISSOCK(state.st_mode):
            os.unlink(full)
            continue
        base = os.path.basename(path)
        if base.startswith(WHITEOUT) and not _is_mark(state):
            raise ImageError(
                f"the file /{file_name(path)} cannot be in a layer: its name would remove another file",
                remedy="give it a name that does not begin with .wh.",
            )
        mtime = int(state.st_mtime_ns // 10**9)
        entry = _Entry(path, state, mtime if rules.newest is None else min(mtime, rules.newest))
        if stat.S_ISDIR(state.st_mode):
            entry.is_opaque = is_opaque(full)
        if stat.S_ISDIR(state.st_mode) or stat.S_ISREG(state.st_mode):
            entry.xattrs = tuple(_xattrs(full))
        if path or entry.is_opaque:
            yield entry


def _is_mark(state: os.stat_result) -> bool:
    """Whether a file may be a whiteout. Bareboat writes an empty, private file where the file system does not
    support devices."""
    return (
        stat.S_ISREG(state.st_mode) and state.st_size == 0 and stat.S_IMODE(state.st_mode) in (0o600, 0o400)
    )


def _xattrs(full: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The extended attributes for the layer. Removes those of overlayfs, except the mark of an opaque
    directory."""
    try:
        names = os.listxattr(full, follow_symlinks=False)
    except OSError:
        return
    for name in sorted(names):
        raw = os.fsencode(name)
        if raw.startswith(OVERLAY_XATTRS):
            if raw != OPAQUE_XATTR:
                with contextlib.suppress(OSError):
                    os.removexattr(full, name, follow_symlinks=False)
            continue
        if not name.startswith("user.") and name != _CAPABILITY:
            continue
        with contextlib.suppress(OSError):
            value = os.getxattr(full, name, follow_symlinks=False)
            yield raw, _capability(value) if name == _CAPABILITY else value


def _capability(value: bytes) -> bytes:
    """A file's capabilities without the namespace in which they were set; it exists only on this machine."""
    if len(value) == 24 and struct.unpack_from("<I", value)[0] & _CAP_MASK == _CAP_REVISION_3:
        magic = struct.unpack_from("<I", value)[0] & ~_CAP_MASK | _CAP_REVISION_2
        return struct.pack("<I", magic) + value[4:20]
    return value


def _restamp(tree: bytes, entries: list[_Entry], newest: int) -> None:
    """Replace the time of the source in byte code if the source's time changes. Otherwise Python would
    compile it again at each start."""
    changed = {
        each.path: int(each.state.st_mtime_ns // 10**9)
        for each in entries
        if each.path.endswith(b".py") and each.state.st_mtime_ns // 10**9 > newest
    }
    for entry in entries:
        folder, _, base = entry.path.rpartition(b"/")
        if not base.endswith(b".pyc") or os.path.basename(folder) != b"__pycache__":
            continue
        source = os.path.join(os.path.dirname(folder), base.partition(b".")[0] + b".py")
        before = changed.get(source)
        if before is None or not stat.S_ISREG(entry.state.st_mode):
            continue
        full = os.path.join(tree, entry.path)
        mode = stat.S_IMODE(entry.state.st_mode)
        os.chmod(full, mode | 0o600)
        with open(full, "r+b") as stream:
            head = stream.read(_PYC.size)
            if len(head) == _PYC.size:
                magic, flags, time, size = _PYC.unpack(head)
                if flags == 0 and time == before & 0xFFFFFFFF:
                    stream.seek(0)
                    stream.write(_PYC.pack(magic, flags, newest & 0xFFFFFFFF, size))
        os.chmod(full, mode)


class _Writer:
    """Hashes the tar and writes the recipe."""

    def __init__(self, tree: bytes, recipe: Path, check: Callable[[], None]) -> None:
        self._tree = tree
        self._check = check
        self._recorder = recipes.Recorder(recipe)
        self._hashed = digests.hasher()
        self._literal = bytearray()
        self._size = self._unpacked = 0
        self._inodes = 1
        self._stackable = True
        self._first_names: dict[tuple[int, int], bytes] = {}
        #: Path -> what the tree cannot have.
        self.metadata: dict[bytes, Metadata] = {}

    def add(self, entry: _Entry, rules: Rules) -> None:
        """Add one entry of the tree."""
        state, path, mode = entry.state, entry.path, stat.S_IMODE(entry.state.st_mode)
        owner = rules.owner(path)
        self._inodes += bool(path)
        if is_whiteout(state):
            parent, _, base = path.rpartition(b"/")
            self._mark(parent, WHITEOUT + base, entry.mtime)
            return
        if stat.S_ISDIR(state.st_mode):
            if path:
                mode = mode if entry.is_opaque else rules.mode(path, mode)
                self._head(path + b"/", tarreader.FOLDER, entry, owner, mode=mode)
            else:
                self._stackable = False  # overlayfs merges the roots of layers, even opaque ones
            if entry.is_opaque:
                self._mark(path, OPAQUE, entry.mtime)
        elif stat.S_ISLNK(state.st_mode):
            link = os.readlink(os.path.join(self._tree, path))
            self._head(path, tarreader.SYMLINK, entry, owner, mode=0o777, link=link)
        elif stat.S_ISFIFO(state.st_mode):
            self._head(path, tarreader.FIFO, entry, owner, mode=mode)
        elif stat.S_ISREG(state.st_mode):
            self._file(entry, owner, mode)
        else:
            raise ImageError(
                f"/{file_name(path)} is a device, which no layer made here can hold",
                remedy="do not create devices in the image; containers have their own /dev",
            )

    def _file(self, entry: _Entry, owner: Owner, mode: int) -> None:
        state, path = entry.state, entry.path
        if os.path.basename(path).startswith(WHITEOUT):
            self._stackable = False
            self._mark(os.path.dirname(path), os.path.basename(path), entry.mtime)
            return
        if state.st_nlink > 1:
            first = self._first_names.setdefault((state.st_dev, state.st_ino), path)
            if first != path:
                self._inodes -= 1
                self._head(path, tarreader.LINK, entry, owner, mode=mode, link=first)
                return
        full = os.path.join(self._tree, path)
        if is_mostly_holes(state):
            raise ImageError(
                f"/{file_name(path)} has {state.st_size:,} bytes, nearly all of them holes, which are "
                "zeros in a layer",
                remedy="remove it in the same step, or truncate it: truncate -s 0 FILE",
            )
        self._head(path, tarreader.FILE, entry, owner, mode=mode, size=state.st_size)
        literal, self._literal = bytes(self._literal), bytearray()
        crc = 0
        try:
            with untrusted.stream(full, buffering=0) as stream:
                left = state.st_size
                while left and (data := stream.read(min(_CHUNK, left))):
                    self._check()
                    self._hashed.update(data)
                    crc = isal_zlib.crc32(data, crc)
                    left -= len(data)
        except PermissionError:
            raise ImageError(
                f"/{file_name(path)} cannot be read", remedy="chmod u+r it in the same step"
            ) from None
        if left:
            raise ImageError(f"/{file_name(path)} became shorter while it was read", remedy="build again")
        self._size += state.st_size
        self._unpacked += state.st_size
        self._recorder.content(literal, path, state.st_size, crc)
        self._put(tarwriter.padding(state.st_size))

    def _mark(self, folder: bytes, name: bytes, mtime: int) -> None:
        path = folder + b"/" + name if folder else name
        self._put(tarwriter.header(path, tarreader.FILE, mode=0o600, mtime=mtime))

    def _head(
        self,
        name: bytes,
        kind: bytes,
        entry: _Entry,
        owner: Owner,
        *,
        mode: int,
        size: int = 0,
        link: bytes = b"",
    ) -> None:
        if (known := metadata(kind, mode, owner)) is not None:
            self.metadata[entry.path] = known
        self._put(
            tarwriter.header(
                name,
                kind,
                mode=mode,
                size=size,
                mtime=entry.mtime,
                link=link,
                style=tarwriter.Style(owner=owner, xattrs=entry.xattrs),
            )
        )

    def _put(self, data: bytes) -> None:
        self._hashed.update(data)
        self._literal += data
        self._size += len(data)

    def finish(self) -> StoredLayer:
        """Write the end of the tar and return the layer's facts."""
        self._put(tarwriter.END)
        self._recorder.literal(bytes(self._literal))
        complete = self._recorder.close()
        return StoredLayer(
            diff_id=digests.written(self._hashed),
            size_bytes=self._size,
            unpacked_bytes=self._unpacked,
            inodes=self._inodes,
            stackable=self._stackable,
            rebuildable=complete,
        )

    def close(self) -> None:
        self._recorder.abandon()
