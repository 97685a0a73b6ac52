"""The tree of a stage: its layers, how a step sees them, and what a step changed in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from bareboat.files.trees import remove_tree
from bareboat.images.build.places import Place, locate
from bareboat.images.build.tree import Tree
from bareboat.images.inside.view import View
from bareboat.images.layers.whiteouts import is_opaque
from bareboat.model import Layer
from bareboat.store import Store

#: bubblewrap gives the kernel all lower directories in one page, with a prefix for each.
_PAGE_BYTES = 3500
_PREFIX_BYTES = 12


class Rootfs(Struct):
    """The layers of a stage, bottom first."""

    store: Store
    layers: tuple[Layer, ...] = ()
    _view: View | None = None
    #: The lowest layers as one tree, and how many they are.
    _joined: tuple[int, Path] | None = None

    def above(self, layer: Layer) -> Rootfs:
        """With one more layer."""
        made = Rootfs(self.store, (*self.layers, layer))
        made._joined = self._joined
        return made

    @property
    def diff_ids(self) -> list[str]:
        return [layer.diff_id for layer in self.layers]

    @property
    def trees(self) -> list[Path]:
        return [self.store.layer(layer.diff_id) for layer in self.layers]

    @property
    def view(self) -> View:
        if self._view is None:
            self._view = View(self.trees)
        return self._view

    def lower(self, scratch: Path) -> list[str]:
        """The directories to stack, bottom first: the layers' trees, or fewer trees of hard links where
        overlayfs cannot take so many, or not these. `scratch`: for such a tree."""
        count, joined = self._joined or (0, None)
        rest = self._distinct(self.layers[count:])
        length = sum(len(str(tree)) + _PREFIX_BYTES for tree in rest)
        if length > _PAGE_BYTES or not all(layer.stackable for layer in self.layers[count:]):
            from bareboat.images.layers import flatten

            target = scratch / f"joined-{len(self.layers)}"
            flatten.flatten(([joined] if joined else []) + self.trees[count:], target)
            self._joined = (len(self.layers), target)
            return [str(target)]
        found = ([joined] if joined is not None else []) + rest
        if not found:
            empty = scratch / "empty"
            empty.mkdir(exist_ok=True)
            found = [empty]
        return [str(tree) for tree in found]

    def flat(self, scratch: Path) -> Path:
        """All layers as one tree, to mount."""
        if self._joined is None or self._joined[0] != len(self.layers):
            from bareboat.images.layers import flatten

            target = scratch / f"flat-{len(self.layers)}"
            flatten.flatten(self.trees, target)
            self._joined = (len(self.layers), target)
        return self._joined[1]

    def _distinct(self, layers: Sequence[Layer]) -> list[Path]:
        """The trees of layers that hold something, each once: overlayfs refuses one that comes twice, and the
        upper one decides."""
        last = {layer.diff_id: number for number, layer in enumerate(layers)}
        found = [self.store.layer(diff_id) for diff_id, _ in sorted(last.items(), key=lambda pair: pair[1])]
        return [tree for tree in found if not is_empty(tree)]

    def is_own(self) -> bool:
        """Whether all layers belong to this user: overlayfs cannot copy up the files of others."""
        for tree in self.trees:
            with os.scandir(tree) as entries:
                first = next(entries, None)
            if first is not None:
                state = first.stat(follow_symlinks=False)
                if (state.st_uid, state.st_gid) != (os.geteuid(), os.getegid()):
                    return False
        return True


class Stubs:
    """The mount points of a step that its tree lacks: bubblewrap makes them, and they are no change."""

    def __init__(self, view: View, targets: Iterable[str]) -> None:
        """Raises PlaceError for a target that cannot be a place."""
        self._view = view
        #: What will be made, deepest last.
        self._made: list[str] = []
        self.places: dict[str, Place] = {}
        for target in targets:
            place = locate(view, target)
            self.places[target] = place
            if place.node is None:
                self._made += [each for each in (*place.missing, place.path) if each not in self._made]

    def path(self, target: str) -> str:
        """Where to mount: the target without links."""
        return self.places[target].path

    def remove(self, upper: Path, *, keep: Collection[str] = ()) -> None:
        """Remove what is still as bubblewrap made it, and directories that did not change otherwise; `keep`:
        directories that did, by their owner. The step may have moved what a stub is in, and put a link in its
        place: no link is followed."""
        with Tree(upper) as tree:
            touched = {
                os.path.dirname(path)
                for path in sorted(self._made, key=len, reverse=True)
                if tree.remove_empty(path)
            }
            for path in touched:
                self._restore(tree, path)
            _prune(tree, self._view, {f"/{path}" for path in keep})

    def _restore(self, tree: Tree, path: str) -> None:
        """The time of a directory in which a stub was."""
        found = self._view.find(path)
        if found is not None and path not in self._made:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                tree.change_folder(path, mtime_ns=os.lstat(found.node.places[0]).st_mtime_ns)


def _prune(tree: Tree, view: View, keep: Collection[str]) -> None:
    """Remove directories that were only opened for writing: empty ones, as those below have them."""
    for path in reversed(list(tree.folders())):
        if path in keep:
            continue
        found = view.find(path)
        if found is None or found.path != path or found.node.kind != "folder":
            continue
        below, state = os.lstat(found.node.places[0]), tree.state(path)
        assert state is not None
        same = (state.st_mode, state.st_mtime_ns) == (below.st_mode, below.st_mtime_ns)
        above = os.path.dirname(path)
        before = tree.state(above)
        if same and before is not None and not tree.is_opaque(path) and tree.remove_empty(path):
            tree.change_folder(above, mtime_ns=before.st_mtime_ns)


def is_empty(tree: Path) -> bool:
    """Whether a step changed nothing."""
    with os.scandir(tree) as found:
        return next(found, None) is None and not is_opaque(os.fsencode(tree))


def discard(path: Path) -> None:
    """Remove a tree that is not needed any more."""
    with contextlib.suppress(OSError):
        remove_tree(path)
