"""Rebuilds a layer's original tar, bit for bit, from its unpacked tree.

A layer is stored once, as files. To push or verify it, the tar with the layer's digest is needed again, and
that contains more than files: the order of entries, owners, true modes, headers in various dialects,
padding. While a layer is unpacked, everything in its tar except the files' contents goes into the recipe.

    MAGIC, number of replaced contents (uint32), then, as one zstd stream, records:
    kind, length of the literal bytes, length of the path, offset, size, CRC-32; the literal bytes; the path

A record means: write the literal bytes, then `size` bytes of that file, from that offset. Where a later
entry of the layer replaced the file of an earlier one, the tree has only the later content: the recipe keeps
the earlier content, and the names of hard links, to know which content a name had at which time.
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

from bareboat_base import digests
from bareboat_base.errors import ImageError, StoreError
from bareboat_base.files import failures, untrusted
from bareboat_base.printable import file_name

MAGIC = b"bareboat recipe1"

_START = struct.Struct("<16sI")
_RECORD = struct.Struct("<cIHQQI")

#: Literal bytes only; a file's content; a further piece of the same file; a hard link's name; the content
#: that a file had before a later entry replaced it (it follows the record); the end.
_LITERAL, _CONTENT, _FURTHER, _LINK, _REPLACED, _END = b"L", b"F", b"C", b"H", b"X", b"E"

_FLUSH_BYTES = 1 << 18
#: Records are flushed once there are this many, or one is this large.
_MOST_PENDING = 1500
_LARGE_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 20
#: Headers are similar: the fastest level shrinks them to a twentieth, higher levels gain little.
_LEVEL = 1
#: The index of replaced contents is in memory; no real layer has a long one.
_MOST_REPLACED = 100_000
#: Replaced bytes allowed beyond the layer's content: a file with several names may be replaced at each.
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
        """Record bytes that are not a file's content."""
        self._add(_LITERAL, data, b"", 0, 0, 0)

    def content(self, literal: bytes, path: bytes, size: int, crc: int) -> None:
        """Record a file's content, whole or its first piece, after the literal bytes."""
        self._content_bytes += size
        pending = self._pending
        length = len(literal)
        pending += (_RECORD.pack(_CONTENT, length, len(path), 0, size, crc), literal, path)
        if length > _LARGE_BYTES or len(pending) > _MOST_PENDING:
            self._flush()

    def first(self, literal: bytes, path: bytes, offset: int, size: int, crc: int) -> None:
        """Record the first piece of a sparse file."""
        self._content_bytes += size
        self._add(_CONTENT, literal, path, offset, size, crc)

    def further(self, offset: int, size: int, crc: int) -> None:
        """Record a further piece of the same file."""
        self._content_bytes += size
        self._add(_FURTHER, b"", b"", offset, size, crc)

    def link(self, literal: bytes, path: bytes) -> None:
        """Record a hard link at this path."""
        self._add(_LINK, literal, path, 0, 0, 0)

    def replaced(self, path: bytes, root_fd: int) -> None:
        """Keep the content of a file that is about to be removed."""
        self._replaced += 1
        if self._replaced > _MOST_REPLACED:
            self.complete = False
        if not self.complete:
            return
        descriptor = untrusted.open_regular(path, dir_fd=root_fd)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.lseek(descriptor, 0, os.SEEK_HOLE) < size:
                # No real layer has a sparse file twice; its holes would be stored as zeros.
                self.complete = False
                return
            self._replaced_bytes += size
            if self._replaced_bytes > self._content_bytes + _MORE_REPLACED_BYTES:
                # A file with many names that are all replaced: its content would be kept each time.
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
        """Finish the file. Return False, and remove the file, if the recipe is incomplete."""
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
        """Close the file unfinished: the layer is not kept."""
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
# Rebuilding the tar.


def rebuild(tree: Path, recipe: Path, write: Callable[[bytes], object]) -> str:
    """Write the layer's original tar, return its digest (`sha256:…`).

    Raises ImageError, naming the first changed file in the tree, and StoreError for an unreadable recipe.
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


def check(tree: Path, recipe: Path) -> tuple[str, tuple[bytes, ...]]:
    """The digest of the tar rebuilt from the tree, and the files that have changed.

    Raises StoreError for an unreadable recipe.
    """
    rebuilding = _Rebuilding(tree, recipe)
    hashed = digests.hasher()
    for data in rebuilding.run():
        hashed.update(data)
    return digests.written(hashed), tuple(rebuilding.damaged)


def headers(tree: Path, recipe: Path) -> Iterator[bytes]:
    """The tar with zeros instead of file contents: for readers of its headers. Raises StoreError."""
    return _Rebuilding(tree, recipe).headers()


class _Source:
    """The source of a content: a file of the tree, or a range of the replaced contents."""

    __slots__ = ("_descriptor", "_end", "_owned", "_start", "crc")

    def __init__(self, descriptor: int, start: int, end: int, *, owned: bool) -> None:
        self._descriptor = descriptor
        self._start = start
        self._end = end
        self._owned = owned
        #: CRC-32 of the last `read`; -1 if data was missing.
        self.crc = 0

    @classmethod
    def of(cls, root: int, path: bytes) -> _Source:
        try:
            descriptor = untrusted.open_regular(path, dir_fd=root)
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
                with contextlib.suppress(OSError):  # now a directory, a failing disk
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
    """The contents of files before later entries replaced them, per name in order of time; the last content
    of a name is in the tree."""

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
    """One pass over a recipe: the tar's bytes, and the files that have changed."""

    def __init__(self, tree: Path, recipe: Path) -> None:
        self._tree = tree
        self._recipe = recipe
        #: Each once, in the order of the layer's entries.
        self.damaged: list[bytes] = []

    def run(self) -> Iterator[bytes]:
        """The tar, front to back. A damaged file still yields its original number of bytes."""
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
        """Open the recipe: a stream of its records, and the number of replaced contents."""
        import zstandard

        try:
            file = stack.enter_context(untrusted.stream(self._recipe))
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
            if stream.read(1):  # reading also makes zstd verify its checksum
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
        """Copy the replaced contents to a temporary file: they are needed before they come in the recipe,
        which was written in one pass."""
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
    """A zstd stream that raises `unreadable` for damaged data."""

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
