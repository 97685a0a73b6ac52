"""Unpacks one layer: compressed bytes in, a tree of files out, nothing outside it.

Three threads share the work, with little contention for the GIL, since each spends its time in code that
releases it: one inflates, one hashes the tar, and the caller's parses the tar and writes the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from isal import isal_zlib
from msgspec import Struct

from bareboat_images.layers import tar_split as recipes
from bareboat_images.layers.copies import NEW_FILE
from bareboat_images.layers.flow import Flow
from bareboat_images.layers.tree import Tree
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar.limits import Limits, too_many
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
