"""Unpacks one layer: compressed bytes in, a tree of files out, nothing outside it.

Three threads share the work, with little contention for the GIL, since each spends its time in code that
releases it: one inflates, one hashes the tar, and the caller's parses the tar and writes the files.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from isal import isal_zlib
from msgspec import Struct

from bareboat_base import digests
from bareboat_images.layers import tar_split as recipes
from bareboat_images.layers.copies import NEW_FILE
from bareboat_images.layers.tree import Tree
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar.inflation import inflate
from bareboat_images.tar.limits import RATIO_FROM_BYTES, Limits, bomb, too_large, too_many
from bareboat_images.tar.reader import Tar


class Unpacked(Struct, frozen=True, kw_only=True):
    """The result of unpacking. `diff_id`: the digest of the whole uncompressed stream, `tar_bytes` its
    length; `unpacked_bytes`: the sizes of all files; `stackable`: usable as an overlayfs layer;
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
    """Unpack a layer (gzip, zstd or plain tar) into an empty directory that nobody else writes to.

    `chunks` is consumed in another thread; its exceptions are raised here. `name`: the layer's name in
    messages. With `recipe`, a file is created there from which `recipe.rebuild` writes the same tar again.
    `algorithm`: of the diff-id.

    Raises ImageError, naming the entry, for a layer that is damaged, hostile or over a limit; OSError from
    the file system, such as a full disk. Removing a partial result is left to the caller.
    """
    tree = Tree(folder, name, limits)
    try:
        recorder = None if recipe is None else recipes.Recorder(recipe)
        try:
            flow = Flow(chunks, name, limits)
            tree.packed_bytes = lambda: flow.in_bytes
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


def _write_content(out: int, tar: Tar, size: int, *, checked: bool) -> int:
    """Write a file's content; return its CRC-32 if it is to be `checked`."""
    crc, left = 0, size
    while left:
        view = tar.take(left)
        if checked:
            crc = isal_zlib.crc32(view, crc)
        left -= len(view)
        done = os.write(out, view)
        while done < len(view):
            done += os.write(out, view[done:])
    return crc


def _write_entries(tar: Tar, tree: Tree, recorder: recipes.Recorder | None) -> None:
    """Loop over all entries. Regular files, the most frequent type, are written inline, since calls are
    slow."""
    max_entries = tree.limits.max_entries
    umask = tree.umask
    os_open, os_utime, os_close = os.open, os.utime, os.close
    tree.recorder = recorder
    literal = b""
    count = files = files_bytes = 0
    while (entry := tar.next()) is not None:
        kind, name, _, mode, size, mtime_ns, xattrs, sparse = entry
        count += 1
        if count + tree.implied > max_entries:
            raise too_many(tree.name, tree.limits)
        try:
            folder, _, base = name.rpartition(b"/")
            # A plain name in the same directory as the last needs no further check; b"" is in every bytes.
            if folder != tree.here or base[:1] in b"." or kind != tarreader.FILE or sparse is not None:
                tree.entries = count
                tree.unpacked_bytes += files_bytes
                files_bytes = 0
                found = tree.place(entry, tar)
                if found is None:
                    continue
                base = found
            permissions = mode & 0o777 | 0o400
            try:
                out = os_open(base, NEW_FILE, permissions, dir_fd=tree.here_fd)
            except FileExistsError:
                tree.clear(tree.prefix + base)
                out = os_open(base, NEW_FILE, permissions, dir_fd=tree.here_fd)
            files += 1
            try:
                if recorder is not None:
                    literal = tar.literal()
                crc = 0
                if sparse is not None:
                    tree.write_sparse(out, sparse, tar, literal, base)
                elif size:
                    crc = _write_content(out, tar, size, checked=recorder is not None)
                    files_bytes += size
                if xattrs:
                    os.fchmod(out, 0o600)  # attributes can only be set on a writable file
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
    tree.entries = count
    tree.inodes += files
    tree.unpacked_bytes += files_bytes


#: Most blocks queued for each of two consumers.
_QUEUED = 12
#: Blocks smaller than this are joined before they are queued.
_SMALL_BYTES = 1 << 16
#: How long `stop` waits for a source that delivers nothing.
_PATIENCE_S = 2.0


class Flow:
    """Inflates in one thread and hashes in another. Neither accesses the tree."""

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
        """The next uncompressed bytes, None at the end. Raises what the source or the decompressor raised."""
        block = self._blocks.get()
        if block is None and self._failure is not None:
            raise self._failure
        return block

    def finish(self) -> str:
        """The digest of all uncompressed bytes, once all are read."""
        for thread in self._threads:
            thread.join()
        return self._digest

    def stop(self) -> None:
        """Stop the threads; one that waits for its source stops when the source delivers."""
        self._stopped = True
        deadline = time.monotonic() + _PATIENCE_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                self._blocks.get(timeout=0.02)

    def _inflate(self) -> None:
        try:
            small: list[bytes] = []
            small_bytes = 0
            for block in inflate(self._counted(), name=self._name):
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
        hashed = digests.hasher()
        while (block := self._hashing.get()) is not None:
            hashed.update(block)
        self._digest = digests.written(hashed)

    def _check(self) -> None:
        if self.out_bytes > self._limits.max_unpacked_bytes:
            raise too_large(self._name, self._limits)
        if self.out_bytes > RATIO_FROM_BYTES and self.out_bytes > self._limits.max_ratio * self.in_bytes:
            raise bomb(self._name, self._limits.max_ratio, self.in_bytes, self.out_bytes)
