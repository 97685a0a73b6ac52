"""How to write a layer's tar again, bit by bit, from its unpacked tree.

A layer is stored once, as files. To push or verify it, the tar that its digest stands for is needed again,
and that holds more than files: the order of entries, owners, true modes, headers in one of many dialects,
padding. While a layer is unpacked, everything in its tar but the files' contents goes into the recipe.

    MAGIC, how many replaced contents there are (uint32), then, as one zstd stream, records:
    kind, length of the literal bytes, length of the path, offset, size, CRC-32; the literal bytes; the path

A record says: write the literal bytes, then so many bytes of that file, from that offset. Where a later
entry of the layer replaced a file that an earlier one made, the tree has only the last: the earlier content
is kept in the recipe, and the names of hard links are, to tell which content a name had at which time.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from isal import isal_zlib

from bareboat import digests
from bareboat.errors import ImageError, StoreError
from bareboat.files import failures
from bareboat.printable import file_name

MAGIC = b"bareboat recipe1"

_START = struct.Struct("<16sI")
_RECORD = struct.Struct("<cIHQQI")

#: Literal bytes only; a file's content; a further piece of the same file; a hard link's name; the content
#: that a file had before a later entry replaced it (it follows the record); the end.
_LITERAL, _CONTENT, _FURTHER, _LINK, _REPLACED, _END = b"L", b"F", b"C", b"H", b"X", b"E"

_FLUSH_BYTES = 1 << 18
#: Records are collected until they are many, or large.
_MOST_PENDING = 1500
_LARGE_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 20
#: Headers are alike: the quickest level makes them a twentieth, the next ones little less.
_LEVEL = 1
#: The index of replaced contents is held in memory; no honest layer has one for long.
_MOST_REPLACED = 100_000
#: How much more may be replaced than the layer has: a file of several names may be replaced by each.
_MORE_REPLACED_BYTES = 64 << 20

_AGAIN = "bareboat image pull --fresh …   # fetches it again"


class Recorder:
    """Writes the recipe of a layer while the layer is unpacked."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._file.write(_START.pack(MAGIC, 0))
        self._stream = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._replaced = 0
        self._content_bytes = self._replaced_bytes = 0
        self.complete = True

    def literal(self, data: bytes) -> None:
        """Bytes that are no file's content."""
        self._add(_LITERAL, data, b"", 0, 0, 0)

    def content(self, literal: bytes, path: bytes, size: int, crc: int) -> None:
        """A file's content, whole or its first piece, after bytes that are not."""
        self._content_bytes += size
        pending = self._pending
        length = len(literal)
        pending += (_RECORD.pack(_CONTENT, length, len(path), 0, size, crc), literal, path)
        if length > _LARGE_BYTES or len(pending) > _MOST_PENDING:
            self._flush()

    def first(self, literal: bytes, path: bytes, offset: int, size: int, crc: int) -> None:
        """The first piece of a sparse file."""
        self._content_bytes += size
        self._add(_CONTENT, literal, path, offset, size, crc)

    def further(self, offset: int, size: int, crc: int) -> None:
        """A further piece of the same file."""
        self._content_bytes += size
        self._add(_FURTHER, b"", b"", offset, size, crc)

    def link(self, literal: bytes, path: bytes) -> None:
        """A hard link was made at this path."""
        self._add(_LINK, literal, path, 0, 0, 0)

    def replaced(self, path: bytes, root_fd: int) -> None:
        """Keep the content of a file that is about to be removed."""
        self._replaced += 1
        if self._replaced > _MOST_REPLACED:
            self.complete = False
        if not self.complete:
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.lseek(descriptor, 0, os.SEEK_HOLE) < size:
                # Nobody packs a sparse file twice; holes would be stored as what they claim to be.
                self.complete = False
                return
            self._replaced_bytes += size
            if self._replaced_bytes > self._content_bytes + _MORE_REPLACED_BYTES:
                # A file with many names, all of which are replaced: each time its content would be kept.
                self.complete = False
                return
            os.lseek(descriptor, 0, os.SEEK_SET)
            self._add(_REPLACED, b"", path, 0, size, 0)
            while data := os.read(descriptor, _CHUNK_BYTES):
                self._pending.append(data)
                self._pending_bytes += len(data)
                self._flush()
        finally:
            os.close(descriptor)

    def close(self) -> bool:
        """Finish the file. False, and no file, where the recipe is not complete."""
        with self._file:
            self._add(_END, b"", b"", 0, 0, 0)
            self._flush()
            self._write(self._stream.flush())
            self._file.seek(0)
            self._file.write(_START.pack(MAGIC, self._replaced))
        if not self.complete:
            self._path.unlink()
        return self.complete

    def abandon(self) -> None:
        """Close the file as it is: the layer will not be kept."""
        self._file.close()

    def _add(self, kind: bytes, literal: bytes, path: bytes, offset: int, size: int, crc: int) -> None:
        self._pending += (_RECORD.pack(kind, len(literal), len(path), offset, size, crc), literal, path)
        self._pending_bytes += len(literal) + _RECORD.size
        if self._pending_bytes > _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = self._stream.compress(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0
        self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]


# --------------------------------------------------------------------------------------------------
# Writing the tar again.


def rebuild(tree: Path, recipe: Path, write: Callable[[bytes], object]) -> str:
    """Write the layer's original tar, return its digest (`sha256:…`).

    Raises ImageError that names the first file in the tree that is no longer what it was, StoreError for
    a recipe that cannot be read.
    """
    rebuilding = _Rebuilding(tree, recipe)
    hashed = digests.hasher()
    for data in rebuilding.run():
        hashed.update(data)
        write(data)
    for path in rebuilding.damaged:
        raise ImageError(
            f"the file {file_name(path)} in {tree} is not as the layer had it",
            context="it was changed, cut or removed since the layer was unpacked",
            remedy=_AGAIN,
        )
    return digests.written(hashed)


def check(tree: Path, recipe: Path, algorithm: str = "sha256") -> tuple[str, tuple[bytes, ...]]:
    """The digest of the tar that the tree gives now, and the files that are not as they were.

    Raises StoreError for a recipe that cannot be read.
    """
    rebuilding = _Rebuilding(tree, recipe)
    hashed = digests.hasher(algorithm)
    for data in rebuilding.run():
        hashed.update(data)
    return digests.written(hashed), tuple(rebuilding.damaged)


def headers(tree: Path, recipe: Path) -> Iterator[bytes]:
    """The tar with zeros for the contents of files: for readers of its headers. Raises StoreError."""
    return _Rebuilding(tree, recipe).headers()


class _Source:
    """Where a content comes from: a file of the tree, or a stretch of the replaced contents."""

    __slots__ = ("_descriptor", "_end", "_owned", "_start", "crc")

    def __init__(self, descriptor: int, start: int, end: int, *, owned: bool) -> None:
        self._descriptor = descriptor
        self._start = start
        self._end = end
        self._owned = owned
        #: Of what the last `read` gave; -1 where that was not all there.
        self.crc = 0

    @classmethod
    def of(cls, root: int, path: bytes) -> _Source:
        try:
            descriptor = os.open(
                path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root
            )
        except OSError:
            return cls(-1, 0, 0, owned=False)
        return cls(descriptor, 0, 1 << 63, owned=True)

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        self.crc = 0
        at, end = self._start + offset, self._start + offset + size
        while at < end:
            most = min(_CHUNK_BYTES, end - at)
            data = b""
            if self._descriptor >= 0 and self.crc >= 0:
                with contextlib.suppress(OSError):  # now a folder, a failing disk
                    data = os.pread(self._descriptor, min(most, self._end - at), at)
            if data:
                self.crc = isal_zlib.crc32(data, self.crc)
            else:
                self.crc = -1
                data = bytes(most)
            at += len(data)
            yield data

    def close(self) -> None:
        if self._owned:
            os.close(self._descriptor)
            self._owned = False


class _Earlier:
    """The contents that files had before later entries replaced them, in the order in which each name had
    them; the one that a name has at last is in the tree."""

    def __init__(self, descriptor: int, index: dict[bytes, deque[tuple[int, int]]]) -> None:
        self._descriptor = descriptor
        self._index = index

    def take(self, path: bytes) -> _Source | None:
        waiting = self._index.get(path)
        if not waiting:
            return None
        start, size = waiting.popleft()
        return _Source(self._descriptor, start, start + size, owned=False)


class _Rebuilding:
    """One pass over a recipe: the tar's bytes, and the files found not to be what they were."""

    def __init__(self, tree: Path, recipe: Path) -> None:
        self._tree = tree
        self._recipe = recipe
        #: Each once, in the order of the layer's entries.
        self.damaged: list[bytes] = []

    def run(self) -> Iterator[bytes]:
        """The tar, front to back. A damaged file gives the number of bytes that it should have."""
        self.damaged.clear()
        with contextlib.ExitStack() as stack:
            root = os.open(self._tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, root)
            stream, replaced = self._open(stack)
            earlier = self._gather_replaced(stack) if replaced else _Earlier(-1, {})
            path = b""
            source: _Source | None = None
            try:
                while (record := self._record(stream)) is not None:
                    kind, literal_bytes, path_bytes, offset, size, crc = record
                    yield from self._lumps(stream, literal_bytes)
                    if path_bytes:
                        path = self._exactly(stream, path_bytes)
                    if kind == _REPLACED:
                        for _ in self._lumps(stream, size):
                            pass
                    elif kind == _LINK:
                        earlier.take(path)
                    elif kind in (_CONTENT, _FURTHER):
                        if kind == _CONTENT:
                            if source is not None:
                                source.close()
                            source = earlier.take(path) or _Source.of(root, path)
                        if source is None:
                            raise self._unreadable("it begins with a further piece")
                        yield from source.read(offset, size)
                        if source.crc != crc and path not in self.damaged[-1:]:
                            self.damaged.append(path)
            finally:
                if source is not None:
                    source.close()

    def headers(self) -> Iterator[bytes]:
        """The tar, front to back, without reading any file."""
        zeros = bytes(_CHUNK_BYTES)
        with contextlib.ExitStack() as stack:
            stream, _ = self._open(stack)
            while (record := self._record(stream)) is not None:
                kind, literal_bytes, path_bytes, _, size, _ = record
                yield from self._lumps(stream, literal_bytes)
                self._exactly(stream, path_bytes)
                if kind == _REPLACED:
                    for _ in self._lumps(stream, size):
                        pass
                elif kind in (_CONTENT, _FURTHER):
                    for done in range(0, size, _CHUNK_BYTES):
                        yield zeros[: size - done]

    def _open(self, stack: contextlib.ExitStack) -> tuple[IO[bytes], int]:
        """The recipe's records, as a stream, and how many replaced contents there are."""
        import zstandard

        try:
            file = stack.enter_context(open(self._recipe, "rb"))  # noqa: SIM115
        except OSError as error:
            raise StoreError(
                f"the recipe {self._recipe} cannot be read", context=str(error), remedy=_AGAIN
            ) from None
        start = file.read(_START.size)
        if len(start) != _START.size or not start.startswith(MAGIC):
            raise self._unreadable("it does not begin as one")
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_size=_CHUNK_BYTES)
        return io.BufferedReader(_Guarded(reader, self._unreadable), _FLUSH_BYTES), _START.unpack(start)[1]

    def _record(self, stream: IO[bytes]) -> tuple[bytes, int, int, int, int, int] | None:
        """The next record, None at the end."""
        kind, literal_bytes, path_bytes, offset, size, crc = _RECORD.unpack(
            self._exactly(stream, _RECORD.size)
        )
        if kind == _END:
            if stream.read(1):  # also makes zstd compare its checksum
                raise self._unreadable("it goes on after its end")
            return None
        return kind, literal_bytes, path_bytes, offset, size, crc

    def _exactly(self, stream: IO[bytes], size: int) -> bytes:
        data = stream.read(size)
        if len(data) != size:
            raise self._unreadable("it ends too early")
        return data

    def _lumps(self, stream: IO[bytes], size: int) -> Iterator[bytes]:
        while size:
            yield (data := self._exactly(stream, min(size, _CHUNK_BYTES)))
            size -= len(data)

    def _gather_replaced(self, stack: contextlib.ExitStack) -> _Earlier:
        """The contents that later entries replaced, in a file of their own: they are needed before they come
        in the recipe, which was written in one go."""
        kept = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        index: dict[bytes, deque[tuple[int, int]]] = {}
        stream, _ = self._open(stack)
        while (record := self._record(stream)) is not None:
            kind, literal_bytes, path_bytes, _, size, _ = record
            for _ in self._lumps(stream, literal_bytes):
                pass
            path = self._exactly(stream, path_bytes)
            if kind == _REPLACED:
                index.setdefault(path, deque()).append((kept.tell(), size))
                for data in self._lumps(stream, size):
                    with failures.at(tempfile.gettempdir()):
                        kept.write(data)
        with failures.at(tempfile.gettempdir()):
            kept.flush()
        return _Earlier(kept.fileno(), index)

    def _unreadable(self, reason: str) -> StoreError:
        return StoreError(f"the recipe {self._recipe} is damaged: {reason}", remedy=_AGAIN)


class _Guarded(io.RawIOBase):
    """A zstd stream whose damage is told as ours."""

    def __init__(self, reader: IO[bytes], unreadable: Callable[[str], StoreError]) -> None:
        super().__init__()
        self._reader = reader
        self._unreadable = unreadable

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        import zstandard

        try:
            return self._reader.readinto(buffer)  # type: ignore[attr-defined, no-any-return]
        except zstandard.ZstdError as error:
            raise self._unreadable(str(error)) from None
