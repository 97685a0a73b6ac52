"""Merges several layers into one tree: of hard links where no overlay can be mounted, or of independent
copies.

The result equals an overlay mount of the same layers. Whiteouts come in three forms: a character device
0:0, a file `.wh.NAME`, and, for a whole directory, `user.overlay.opaque` or a file `.wh..wh..opq`.
https://docs.kernel.org/filesystems/overlayfs.html
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from bareboat_base.host_files import Mount
from bareboat_images.layers.copies import FOLDER, NO_LINK, copy_entry, make_writable
from bareboat_images.layers.places import make_mount_points
from bareboat_images.layers.whiteouts import OPAQUE, OVERLAY_XATTRS, WHITEOUT, is_opaque, is_whiteout
from bareboat_images.model import Image
from bareboat_images.store import Store

_WHITEOUT, _OPAQUE = os.fsdecode(WHITEOUT), os.fsdecode(OPAQUE)
_OVERLAY_XATTRS = os.fsdecode(OVERLAY_XATTRS)

#: A directory with at most this many entries below it is linked; mounting a larger one is faster.
_SMALL = 200


def make_flat(
    store: Store, image: Image, mount_points: Sequence[Mount] = (), *, relinked: bool = False
) -> Path:
    """The image as one tree in the store, created if missing, with mount points for the mounts unless another
    member of a group made it.

    `relinked`: a separate tree in which absolute links are relative, so that they stay inside the image when
    the tree is not the root directory. Raises PlanError for a mount that cannot have a mount point.
    """
    final = store.relinked(image.digest) if relinked else store.flat(image.digest)
    if not final.is_dir():
        with store.scratch(own=store.is_own(final)) as scratch:
            flatten(store.trees(image), scratch / "flat")
            if relinked:
                _relink(scratch / "flat")
            store.publish(scratch / "flat", final)
    if os.geteuid() in (0, final.stat().st_uid):
        make_mount_points(final, mount_points)
    return final


def flatten(layers: Sequence[Path], target: Path) -> None:
    """Fill an empty directory with the merged layers, bottom first. It is created if missing.

    Files become hard links; data is copied only where links are refused. Raises OSError from the file
    system; removing a partial result is left to the caller.
    """
    _add_all(layers, target, copies=False)


def copy(layers: Sequence[Path], target: Path) -> None:
    """Like `flatten`, but with copies: a writable tree. Hard links between files are preserved."""
    _add_all(layers, target, copies=True)


def _add_all(layers: Sequence[Path], target: Path, *, copies: bool) -> None:
    target.mkdir(exist_ok=True)
    root = os.open(target, FOLDER)
    try:
        for layer in layers:
            source = os.open(layer, FOLDER)
            try:
                _Adding(source, root, copies=copies).run()
            finally:
                os.close(source)
    finally:
        os.close(root)


#: Directories that always are the machine's own, under the same name.
_MACHINE_S = ("/proc", "/sys", "/dev")


def _relink(tree: Path) -> None:
    """Make the absolute links in the tree relative. New links replace them: the layers keep theirs."""
    root = os.open(tree, FOLDER)
    try:
        # Neither os.walk, which is recursive, nor full paths: hostile layers nest thousands of directories.
        pending = [""]
        while pending:
            folder = pending.pop()
            descriptor = os.open(folder or ".", FOLDER, dir_fd=root)
            try:
                pending += _relink_folder(descriptor, folder)
            finally:
                os.close(descriptor)
    finally:
        os.close(root)


def _relink_folder(descriptor: int, folder: str) -> list[str]:
    """Make the links in one directory of the tree relative; return its subdirectories."""
    here = f"/{folder}"
    prefix = f"{folder}/" if folder else ""
    folders = []
    links = []
    with os.scandir(descriptor) as found:
        for entry in found:
            if entry.is_symlink():
                links.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(prefix + entry.name)
    state = os.fstat(descriptor)
    changed = False
    for name in links:
        leads = os.readlink(name, dir_fd=descriptor)
        whole = leads if leads.startswith("/") else _whole(here, leads)
        if whole is None:
            continue
        if _is_machine_s(os.path.normpath(whole)):
            wanted = os.path.normpath(whole)
        else:  # up by the directories of `here`, which are not links, then down the link's path
            wanted = "../" * len([part for part in here.split("/") if part]) + whole.lstrip("/") or "."
        if wanted == leads:
            continue
        if not changed:
            changed = True
            make_writable(descriptor)
        os.unlink(name, dir_fd=descriptor)
        try:
            os.symlink(wanted, name, dir_fd=descriptor)
        except OSError as error:
            if (
                error.errno != errno.ENAMETOOLONG
            ):  # too deep to express: omitted, since the old link would lead out of the image
                raise
    if changed:
        os.fchmod(descriptor, stat.S_IMODE(state.st_mode))
        os.utime(descriptor, ns=(state.st_atime_ns, state.st_mtime_ns))
    return folders


def _whole(folder: str, link: str) -> str | None:
    """Where in the image a relative link leads that climbs above the tree or into `_MACHINE_S`; None for all
    other links, which are correct."""
    depth = len([part for part in folder.split("/") if part])
    whole = os.path.normpath("/" + os.path.join(folder, link).lstrip("/"))
    for part in link.split("/"):
        depth += {"..": -1, "": 0, ".": 0}.get(part, 1)
        if depth < 0:
            return whole
    return whole if _is_machine_s(whole) else None


def _is_machine_s(path: str) -> bool:
    return any(path == own or path.startswith(own + "/") for own in _MACHINE_S)


class _Adding:
    """Adds one layer to those below it."""

    def __init__(self, source: int, target: int, *, copies: bool) -> None:
        self._source = source
        self._target = target
        #: Inode of a file that had to be copied -> its copy: its other names become links to that.
        self._copies: dict[tuple[int, int], str] = {}
        self._never_links = copies

    def run(self) -> None:
        pending = [("", False)]
        while pending:
            folder, is_new = pending.pop()
            given = os.open(folder or ".", FOLDER, dir_fd=self._source)
            try:
                made = os.open(folder or ".", FOLDER, dir_fd=self._target)
                try:
                    pending += self._folder(folder, given, made, is_new)
                    copy_metadata(given, made)
                finally:
                    os.close(made)
            finally:
                os.close(given)

    def _folder(self, folder: str, given: int, made: int, is_new: bool) -> list[tuple[str, bool]]:
        """Apply the layer's whiteouts, link its files and create its directories; return the directories, and
        whether each is new: a new one has no conflicting entries."""
        folders: list[str] = []
        files: list[str] = []
        hidden: list[str] = []
        opaque = is_opaque(given)
        with os.scandir(given) as found:
            for entry in found:
                name = entry.name
                if name.startswith(_WHITEOUT):
                    opaque = opaque or name == _OPAQUE
                    hidden.append(name[len(_WHITEOUT) :])
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    files.append(name)
                elif is_whiteout(entry.stat(follow_symlinks=False)):
                    hidden.append(name)
                else:
                    files.append(name)
        if not is_new:
            make_writable(made)
            if opaque:
                hidden = os.listdir(made)
            for name in hidden:
                if name not in ("", ".", ".."):
                    _remove(made, name)
        prefix = folder + "/" if folder else ""
        for name in files:
            self._link(given, made, name, prefix, is_new)
        return [(prefix + name, _make_folder(made, name, is_new)) for name in folders]

    def _link(self, given: int, made: int, name: str, prefix: str, is_new: bool) -> None:
        if not self._never_links:
            try:
                os.link(name, name, src_dir_fd=given, dst_dir_fd=made, follow_symlinks=False)
                return
            except FileExistsError:
                if is_new:
                    raise
                _remove(made, name)
                self._link(given, made, name, prefix, True)
                return
            except OSError as error:
                if error.errno not in NO_LINK:
                    raise
                self._never_links = error.errno == errno.EXDEV
        if not is_new:
            _remove(made, name)
        state = os.lstat(name, dir_fd=given)
        identity = (state.st_dev, state.st_ino)
        if state.st_nlink > 1 and identity in self._copies:
            with contextlib.suppress(OSError):
                os.link(
                    self._copies[identity],
                    name,
                    src_dir_fd=self._target,
                    dst_dir_fd=made,
                    follow_symlinks=False,
                )
                return
        copy_entry(given, os.fsencode(name), made, os.fsencode(name))
        if state.st_nlink > 1:
            self._copies[identity] = prefix + name


def _make_folder(made: int, name: str, is_new: bool) -> bool:
    """Create a directory, replacing any other file type; whether it is new."""
    try:
        os.mkdir(name, 0o700, dir_fd=made)
    except FileExistsError:
        if is_new:
            raise
        if stat.S_ISDIR(os.lstat(name, dir_fd=made).st_mode):
            return False
        os.unlink(name, dir_fd=made)
        os.mkdir(name, 0o700, dir_fd=made)
    return True


def copy_metadata(given: int, made: int) -> None:
    """Copy mode, time and attributes of a directory: the topmost layer that has it determines them."""
    with contextlib.suppress(OSError):  # a file system without extended attributes
        wanted = {key for key in os.listxattr(given) if _is_users(key)}
        for key in os.listxattr(made):
            if _is_users(key) and key not in wanted:
                os.removexattr(made, key)
        for key in wanted:
            os.setxattr(made, key, os.getxattr(given, key))
    state = os.fstat(given)
    os.fchmod(made, stat.S_IMODE(state.st_mode))
    os.utime(made, ns=(state.st_mtime_ns, state.st_mtime_ns))


def join(flat: Path, tree: Path, places: set[str], how: list[str], folder: str = "") -> None:
    """Fill a tree, or one directory of it, that gets other entries at `places`: with links to the files of a
    flat tree and to small directories. Of larger ones only the empty directory is made, to mount them there.
    Appends to `how`, for each path: `n` for a new directory, `l` for a link, `b` for a directory to mount."""
    source, target = os.open(flat / folder, FOLDER), os.open(tree / folder, FOLDER)
    how.append(f"n/{folder}")
    inner = []
    try:
        with os.scandir(source) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                if not entry.is_dir(follow_symlinks=False):
                    _link(source, target, entry.name)
                    how.append(f"l/{path}")
                    continue
                if any(place.startswith(f"{path}/") for place in places):
                    os.mkdir(entry.name, 0o700, dir_fd=target)
                    inner.append(path)
                elif path not in places and _is_small(str(flat / path)):
                    flatten([flat / path], tree / path)
                    how.append(f"l/{path}")
                else:
                    os.mkdir(entry.name, 0o755, dir_fd=target)
                    how += [] if path in places else [f"b/{path}"]
        for path in inner:
            join(flat, tree, places, how, path)
        copy_metadata(source, target)
    finally:
        os.close(source)
        os.close(target)


def _link(source: int, target: int, name: str) -> None:
    try:
        os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        copy_entry(source, os.fsencode(name), target, os.fsencode(name))


def _is_small(folder: str) -> bool:
    count = 0
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                count += 1
                if count > _SMALL:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return True


def _is_users(key: str) -> bool:
    return key.startswith("user.") and not key.startswith(_OVERLAY_XATTRS)


def _remove(folder_fd: int, name: str) -> None:
    """Remove an entry, if any: links to the layers below, or copies."""
    try:
        os.unlink(name, dir_fd=folder_fd)
        return
    except FileNotFoundError:
        return
    except IsADirectoryError:
        pass
    folders = [name]
    for folder in folders:  # grows during the loop
        descriptor = os.open(folder, FOLDER, dir_fd=folder_fd)
        try:
            make_writable(descriptor)
            with os.scandir(descriptor) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{folder}/{entry.name}")
                    else:
                        os.unlink(entry.name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
    for folder in reversed(folders):
        os.rmdir(folder, dir_fd=folder_fd)
