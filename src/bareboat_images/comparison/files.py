"""Compare the files of two images by content. Directories from the same layers in both are equal and are not
read. Owners, times and extended attributes are not compared."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, get_args

from msgspec import Struct

from bareboat_base.files import untrusted
from bareboat_images.layers.view import Found, Node, View

State = Literal["added", "removed", "changed"]
_PIECE_BYTES = 1 << 20
#: Depth limit, more than any image has: the kernel's longest path has no more directories.
_DEEPEST = 2048


class Change(Struct, frozen=True, kw_only=True):
    """One path that differs. `before_bytes`, `after_bytes`: the size of a file, 0 for other entries; `what`:
    content, mode, kind or target; for an added or removed path its kind."""

    path: str
    state: State
    what: str
    before_bytes: int = 0
    after_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """The size of the file that was added, removed or changed; of a changed one in the second image."""
        return self.before_bytes if self.state == "removed" else self.after_bytes


def counts(changes: Iterable[Change]) -> dict[str, int]:
    """How many paths were added, removed and changed, and the bytes of these files."""
    found = {f"{state}{what}": 0 for state in get_args(State) for what in ("", "_bytes")}
    for each in changes:
        found[each.state] += 1
        found[f"{each.state}_bytes"] += each.size_bytes
    return found


class Comparison:
    """Compares two trees, path by path. `unreadable`: paths that this user cannot read; not compared."""

    def __init__(
        self, before: View, after: View, *, progress: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._before = before
        self._after = after
        self._progress = progress
        self.unreadable: list[str] = []
        #: The number of compared paths, without those in equal directories.
        self.compared = 0

    def changes(self) -> Iterator[Change]:
        """All paths that differ, sorted within each directory."""
        pending = ["/"]
        hidden = self._hidden()
        while pending:
            folder = pending.pop()
            before, after = self._before.names(folder), self._after.names(folder)
            if self._hidden() > hidden:
                hidden = self._hidden()
                self.unreadable.append(folder)
                continue
            if self.compared % 100 == 0:
                self._progress(f"comparing files: {folder}")
            below = []
            for name in sorted(before.keys() | after.keys()):
                path = f"{folder.rstrip('/')}/{name}"
                self.compared += 1
                one, other = before.get(name), after.get(name)
                if one is None or other is None:
                    if other is not None:
                        yield from self._all(path, other, self._after, "added")
                    if one is not None:
                        yield from self._all(path, one, self._before, "removed")
                elif one.places == other.places:
                    continue
                elif one.kind == other.kind == "folder":
                    if path.count("/") < _DEEPEST:
                        below.append(path)
                    if (what := self._mode(path, one, other)) is not None:
                        yield Change(path=path, state="changed", what=what)
                elif one.kind != other.kind:
                    yield from self._all(path, one, self._before, "removed")
                    yield from self._all(path, other, self._after, "added")
                else:
                    yield from self._pair(path, one, other)
            pending += reversed(below)

    def _hidden(self) -> int:
        """The number of directories that could not be read so far."""
        return len(self._before.unreadable) + len(self._after.unreadable)

    def _all(self, path: str, node: Node, view: View, state: State) -> Iterator[Change]:
        """Changes for a path that only one image has, and everything below it."""
        pending = [(path, node)]
        while pending:
            path, node = pending.pop()
            size = 0
            if node.kind == "file":
                try:
                    size = os.lstat(node.places[0]).st_size
                except OSError:
                    self.unreadable.append(path)
            own = size if node.kind == "file" else 0
            kind = {"folder": "directory"}.get(node.kind, node.kind)
            if state == "added":
                yield Change(path=path, state=state, what=kind, after_bytes=own)
            else:
                yield Change(path=path, state=state, what=kind, before_bytes=own)
            if node.kind == "folder" and path.count("/") < _DEEPEST:
                names: Mapping[str, Node] = view.inside(Found(path, node))
                pending += [(f"{path}/{name}", names[name]) for name in sorted(names, reverse=True)]

    def _mode(self, path: str, one: Node, other: Node) -> str | None:
        try:
            modes = [stat.S_IMODE(os.lstat(node.places[0]).st_mode) for node in (one, other)]
        except OSError:
            self.unreadable.append(path)
            return None
        return None if modes[0] == modes[1] else f"mode {modes[0]:04o} -> {modes[1]:04o}"

    def _pair(self, path: str, one: Node, other: Node) -> Iterator[Change]:
        """Compare two files, links or other entries with the same path."""
        try:
            if one.kind == "link":
                targets = [os.readlink(node.places[0]) for node in (one, other)]
                if targets[0] != targets[1]:
                    yield Change(path=path, state="changed", what="target")
                return
            states = [os.lstat(node.places[0]) for node in (one, other)]
            sizes = [state.st_size if one.kind == "file" else 0 for state in states]
            if one.kind == "file" and not _is_equal(one.places[0], other.places[0], *states):
                what: str | None = "content"
            elif stat.S_IFMT(states[0].st_mode) != stat.S_IFMT(states[1].st_mode):
                what = "kind"
            else:
                what = self._mode(path, one, other)
        except OSError:
            self.unreadable.append(path)
            return
        if what is not None:
            yield Change(path=path, state="changed", what=what, before_bytes=sizes[0], after_bytes=sizes[1])


def _is_equal(one: str, other: str, before: os.stat_result, after: os.stat_result) -> bool:
    """Whether two files have the same content. Raises OSError."""
    if (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino):
        return True
    if before.st_size != after.st_size:
        return False
    with (
        open(untrusted.open_regular(one), "rb") as first,
        open(untrusted.open_regular(other), "rb") as second,
    ):
        while True:
            piece = first.read(_PIECE_BYTES)
            if piece != second.read(_PIECE_BYTES):
                return False
            if not piece:
                return True
