"""The sources of files for COPY, ADD and mounts: the context, another stage, an image, an archive."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from bareboat_base import digests
from bareboat_base.errors import ImageError, UsageError
from bareboat_base.printable import quoted
from bareboat_images.layers.view import Node, View
from bareboat_images.layers.whiteouts import WHITEOUT
from bareboat_images.recipe.ignore import Ignored, compiled, has_wildcard
from bareboat_images.tar.limits import is_mostly_holes

if TYPE_CHECKING:
    from bareboat_images.builder.metadata import Metadata

_CHUNK = 1 << 20
_MOST_ENTRIES = 10_000_000
_HIDDEN = os.fsdecode(WHITEOUT)


class NotFoundError(ValueError):
    """A source matches nothing or is outside; the text is the reason."""


class UnmatchedError(NotFoundError):
    """A pattern matches nothing."""


class Item(Struct, frozen=True):
    """One entry. `path`: below the source's root, links resolved; `real`: the path on this machine;
    `given`: the path before links were followed; a copy has its last name; `mode`: as the layer has it."""

    path: str
    real: str
    state: os.stat_result
    given: str
    mode: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.state.st_mode)


class Files:
    """One source. `name`: for messages; `ignored`: excluded paths. Links are followed inside the source."""

    def __init__(
        self,
        layers: Sequence[Path],
        *,
        name: str,
        ignored: Ignored | None = None,
        is_stored: bool = False,
        metadata: Callable[[bytes, Node], Metadata | None] = lambda _path, _node: None,
    ) -> None:
        """`is_stored`: the layers belong to the store and do not change; `metadata`: of an entry whose tree
        lacks some."""
        self.name = name
        self.is_stored = is_stored
        self.layers = tuple(layers)
        self._view = View(layers)
        self._ignored = ignored or Ignored(())
        self._metadata = metadata
        #: Excluded directory -> whether an exception keeps something in it.
        self._keep: dict[str, bool] = {}

    def select(self, pattern: str) -> list[Item]:
        """The entries that match a source of COPY; links are followed. Raises NotFoundError."""
        path = posixpath.normpath(pattern.lstrip("/") or ".")
        if path == ".." or path.startswith("../"):
            raise NotFoundError(f"{quoted(pattern)} leads out of {self.name}")
        if path == ".":
            return [self._item("/", "")]
        found = self._matching(path) if has_wildcard(path) else [path]
        items = [item for each in found if (item := self._followed(each)) is not None]
        sockets = [item for item in items if stat.S_ISSOCK(item.state.st_mode)]
        items = [item for item in items if not stat.S_ISSOCK(item.state.st_mode)]
        if sockets and not items:
            error = UnmatchedError if has_wildcard(path) else NotFoundError
            raise error(f"{sockets[0].path!r} in {self.name} is a socket, which no image can hold")
        if not items and has_wildcard(path):
            raise UnmatchedError(f"{quoted(pattern)}: not found in {self.name}")
        if not items:
            left_out = self._view.find(f"/{path}") is not None
            why = "is left out by .dockerignore" if left_out else "not found"
            if self._is_link(path):
                why = "is a symbolic link to nothing (links are followed inside only)"
            raise NotFoundError(f"{quoted(pattern)}: {why} in {self.name}")
        return items

    def _is_link(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        node = self._view.names(f"/{folder}").get(name)
        return node is not None and node.kind == "link"

    def _followed(self, path: str) -> Item | None:
        found = self._view.find(f"/{path}")
        if found is None or not (self._is_kept(path) and self._is_kept(found.path[1:])):
            return None
        return self._item_of(found.path[1:], found.node, path)

    def _is_kept(self, path: str) -> bool:
        """Whether .dockerignore keeps a path or something below it."""
        if not self._ignored.ignores(path):
            return True
        return self._ignored.has_exceptions and self._has_kept(path)

    def _matching(self, path: str) -> list[str]:
        """The paths that match a pattern, matched name by name."""
        found = [""]
        for part in path.split("/"):
            step: list[str] = []
            for folder in found:
                prefix = f"{folder}/" if folder else ""
                if part == "**":
                    step += [folder, *(item.path for item in self.walk(folder) if item.is_folder)]
                elif not has_wildcard(part):
                    if part in self._view.names(f"/{folder}"):
                        step.append(prefix + part)
                else:
                    try:
                        rule = compiled(part)
                    except ValueError as error:
                        raise NotFoundError(str(error)) from None
                    step += [
                        prefix + name for name in sorted(self._view.names(f"/{folder}")) if rule.match(name)
                    ]
            found = list(dict.fromkeys(step))
        return [each for each in found if each and self._is_kept(each)]

    def walk(self, folder: str) -> Iterator[Item]:
        """All entries below a directory, parents first, in byte order; links are not followed."""
        pending = [folder]
        count = 0
        while pending:
            here = pending.pop()
            nodes = self._view.names(f"/{here}")
            self._check_names(here)
            inner = []
            for name in sorted(nodes, key=os.fsencode):
                path = f"{here}/{name}" if here else name
                node = nodes[name]
                left_out = self._ignored.ignores(path)
                if left_out and not (node.kind == "folder" and self._ignored.has_exceptions):
                    continue
                item = self._item_of(path, node, path)
                if not (left_out and not self._has_kept(path)):
                    count += 1
                    if count > _MOST_ENTRIES:
                        raise ImageError(
                            f"{self.name} has more than {_MOST_ENTRIES:,} files",
                            remedy="leave out what the image does not need: .dockerignore",
                        )
                    yield item
                    if item.is_folder:
                        inner.append(path)
            pending += reversed(inner)

    def _has_kept(self, folder: str) -> bool:
        """Whether an exception keeps something in an excluded directory."""
        known = self._keep
        pending = [folder]
        while pending and folder not in known:
            here = pending.pop()
            for name, node in self._view.names(f"/{here}").items():
                path = f"{here}/{name}"
                if known.get(path) or not self._ignored.ignores(path):
                    known.update((str(each), True) for each in PurePosixPath(path).parents)
                    return True
                if node.kind == "folder" and path not in known:
                    pending.append(path)
        return known.setdefault(folder, False)

    def _check_names(self, folder: str) -> None:
        """Raise an error for unreadable entries and for names that are whiteouts in a layer, since the view
        hides both."""
        if self._view.unreadable:
            raise UsageError(
                f"{self._view.unreadable[0].lstrip('/') or '.'} in {self.name} cannot be read",
                remedy="chmod -R u+rX it, or leave it out by .dockerignore",
            )
        for layer in () if self.is_stored else self.layers:
            for name in os.listdir(os.path.join(layer, folder)):
                if name.startswith(_HIDDEN) and not self._ignored.ignores(posixpath.join(folder, name)):
                    raise ImageError(
                        f"{posixpath.join(folder, name)} in {self.name} cannot be in a layer",
                        context="a name that begins with .wh. removes another file there",
                        remedy="rename it, or leave it out by .dockerignore",
                    )

    def _item(self, path: str, shown: str) -> Item:
        found = self._view.find(path)
        assert found is not None
        return self._item_of(shown, found.node, shown)

    def _item_of(self, path: str, node: Node, given: str) -> Item:
        real = node.places[0]
        try:
            state = os.lstat(real)
        except FileNotFoundError:
            raise changed(path, self.name) from None
        known = self._metadata(os.fsencode(path), node)
        return Item(path, real, state, given, stat.S_IMODE(state.st_mode) if known is None else known.mode)

    def view(self) -> View:
        """The files as one tree, without exclusions."""
        return self._view


def changed(path: str, name: str) -> ImageError:
    return ImageError(
        f"{path} in {name} was changed while it was read",
        remedy="wait until nothing writes to it, then build again",
    )


class Digester:
    """Digests of file contents. Each file is read once in a build. `check` raises when the build was
    stopped."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._known: dict[tuple[int, ...], str] = {}

    def describe(self, item: Item, files: Files) -> list[object]:
        """The properties of an entry that are part of a key; its times are not."""
        state, mode = item.state, item.mode
        if stat.S_ISLNK(state.st_mode):
            return ["link", read_link(item, files)]
        if stat.S_ISDIR(state.st_mode):
            return ["folder", mode]
        if not stat.S_ISREG(state.st_mode):
            return ["other", mode, stat.S_IFMT(state.st_mode)]
        return ["file", mode, self._content(item, files), _users_xattrs(item.real)]

    def _content(self, item: Item, files: Files) -> str:
        state = item.state
        identity = (state.st_dev, state.st_ino, *_version(state, files))
        found = self._known.get(identity)
        if found is None:
            if not files.is_stored and is_mostly_holes(state):
                raise ImageError(
                    f"{item.path} in {files.name} has {state.st_size:,} bytes, nearly all of them holes, "
                    "which are zeros in a layer",
                    remedy="leave it out by .dockerignore",
                )
            hashed = digests.hasher()
            with open_regular(item, files) as stream:
                while data := stream.read(_CHUNK):
                    self._check()
                    hashed.update(data)
            found = self._known[identity] = hashed.hexdigest()
        return found


def _version(state: os.stat_result, files: Files) -> tuple[int, ...]:
    """Properties that differ after a file was changed. They include the ctime, which nobody can set back,
    except for files of the store, whose ctime changes with each hard link."""
    found = (state.st_mode, state.st_size, state.st_mtime_ns)
    return found if files.is_stored else (*found, state.st_ctime_ns)


def _is_same(item: Item, state: os.stat_result, files: Files) -> bool:
    return item.state.st_ino == state.st_ino and _version(item.state, files) == _version(state, files)


def read_link(item: Item, files: Files) -> str:
    """The target of a symbolic link. Raises ImageError if the link was changed since it was listed."""
    try:
        target = os.readlink(item.real)
        if _is_same(item, os.lstat(item.real), files):
            return target
    except OSError:
        pass
    raise changed(item.path, files.name)


class open_regular:  # used like open()
    """Open a listed file for reading. Raises UsageError, and ImageError if the file was changed before it was
    opened or until it is closed."""

    def __init__(self, item: Item, files: Files) -> None:
        self._item, self._files = item, files
        try:
            descriptor = os.open(item.real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            raise UsageError(
                f"{item.path} in {files.name} cannot be read: permission denied",
                remedy="chmod u+r it, or leave it out by .dockerignore",
            ) from None
        except OSError:
            raise changed(item.path, files.name) from None
        self._stream = open(descriptor, "rb", buffering=0)  # noqa: SIM115
        try:
            self._check()
        except BaseException:
            self._stream.close()
            raise

    def _check(self) -> None:
        state = os.fstat(self._stream.fileno())
        if not stat.S_ISREG(state.st_mode) or not _is_same(self._item, state, self._files):
            raise changed(self._item.path, self._files.name)

    def __enter__(self) -> BinaryIO:
        return self._stream

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._check()
        finally:
            self._stream.close()


def _users_xattrs(path: str) -> list[list[str]]:
    try:
        names = [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")]
        return [[name, os.getxattr(path, name, follow_symlinks=False).hex()] for name in sorted(names)]
    except OSError:
        return []
