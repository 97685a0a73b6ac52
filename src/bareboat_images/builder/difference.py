"""Without overlayfs: run a step in a copy of the root file system and compare it before and after.

Kernels before 5.11 do not support unprivileged overlayfs, some file systems do not support its extended
attributes, and it cannot copy files of other users (a group's store).
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from msgspec import Struct

from bareboat_images.builder.rootfs import Rootfs
from bareboat_images.formats import flatten
from bareboat_images.layers.copies import FOLDER, copy_entry, make_writable
from bareboat_images.layers.whiteouts import OPAQUE, OPAQUE_XATTR, WHITEOUT

_State = tuple[int, int, int, int, int]


class Copied(Struct, frozen=True):
    """A copy of a root file system and the initial state of its entries."""

    path: Path
    before: dict[bytes, _State]


def copied(rootfs: Rootfs, target: Path) -> Copied:
    """Copy the root file system of a stage."""
    flatten.copy(rootfs.trees, target)
    os.chmod(target, 0o755)
    return Copied(target, _states(os.fsencode(target)))


def collect(tree: Copied, upper: Path) -> None:
    """Fill `upper` with the changes since the copy, as overlayfs does: whiteouts mark removed files."""
    after = _states(os.fsencode(tree.path))
    source = os.open(tree.path, FOLDER)
    target = os.open(upper, FOLDER)
    links: dict[int, bytes] = {}
    try:
        for path, state in sorted(after.items()):
            before = tree.before.get(path)
            if before == state:
                continue
            _parents(path, source, target)
            if stat.S_ISDIR(state[0]):
                if before is not None and not stat.S_ISDIR(before[0]):
                    _make(path, source, target)
                    _opaque(path, target)
                else:
                    _make(path, source, target)
                continue
            first = links.setdefault(state[4], path) if stat.S_ISREG(state[0]) else path
            if first != path:
                os.link(first, path, src_dir_fd=target, dst_dir_fd=target, follow_symlinks=False)
            elif stat.S_IFMT(state[0]) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO):
                copy_entry(source, path, target, path)
        for path in sorted(tree.before.keys() - after.keys()):
            parent = os.path.dirname(path)
            if parent and parent not in after:
                continue  # removed with its directory
            if parent in after and parent and not stat.S_ISDIR(after[parent][0]):
                continue
            _parents(path, source, target)
            _whiteout(path, target)
        for path in sorted(after, reverse=True):
            if stat.S_ISDIR(after[path][0]):
                with contextlib.suppress(FileNotFoundError):
                    state_ = os.lstat(path, dir_fd=source)
                    times = (state_.st_mtime_ns, state_.st_mtime_ns)
                    os.utime(path, ns=times, dir_fd=target, follow_symlinks=False)
                    os.chmod(path, stat.S_IMODE(state_.st_mode), dir_fd=target)
    finally:
        os.close(source)
        os.close(target)


def _states(top: bytes) -> dict[bytes, _State]:
    """Mode, size, times and inode of all entries below a directory; for directories only mode and mtime,
    because their change time also depends on their entries."""
    found: dict[bytes, _State] = {}
    pending = [b""]
    while pending:
        folder = pending.pop()
        with os.scandir(os.path.join(top, folder) if folder else top) as entries:
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                path = folder + b"/" + entry.name if folder else entry.name
                if stat.S_ISDIR(state.st_mode):
                    found[path] = (state.st_mode, 0, state.st_mtime_ns, 0, 0)
                    pending.append(path)
                else:
                    found[path] = (
                        state.st_mode, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino,
                    )  # fmt: skip
    return found


def _parents(path: bytes, source: int, target: int) -> None:
    parts = path.split(b"/")[:-1]
    for count in range(1, len(parts) + 1):
        _make(b"/".join(parts[:count]), source, target)


def _make(path: bytes, source: int, target: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=target)
        given = os.open(path, FOLDER, dir_fd=source)
        made = os.open(path, FOLDER, dir_fd=target)
        try:
            flatten.copy_metadata(given, made)
            make_writable(made)
        finally:
            os.close(given)
            os.close(made)


def _opaque(path: bytes, target: int) -> None:
    descriptor = os.open(path, FOLDER, dir_fd=target)
    try:
        try:
            os.setxattr(descriptor, OPAQUE_XATTR, b"y")
        except OSError:
            os.close(os.open(OPAQUE, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=descriptor))
    finally:
        os.close(descriptor)


def _whiteout(path: bytes, target: int) -> None:
    try:
        os.mknod(path, stat.S_IFCHR, 0, dir_fd=target)
    except OSError:
        folder, _, base = path.rpartition(b"/")
        mark = (folder + b"/" if folder else b"") + WHITEOUT + base
        os.close(os.open(mark, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=target))
