"""The root file system of a stage: its layers, as a step sees them, and the changes of a step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from bareboat_base.files.trees import remove_tree
from bareboat_images.builder.places import Place, locate
from bareboat_images.builder.tree import Tree
from bareboat_images.layers.view import View
from bareboat_images.layers.whiteouts import is_opaque
from bareboat_images.model import Layer
from bareboat_images.store import Store

#: bubblewrap passes all lower directories to the kernel in one page, each with a prefix.
_PAGE_BYTES = 3500
_PREFIX_BYTES = 12


class Rootfs(Struct):
    """The layers of a stage, bottom first."""

    store: Store
    layers: tuple[Layer, ...] = ()
    _view: View | None = None
    #: The number of lowest layers that are joined, and their tree.
    _joined: tuple[int, Path] | None = None

    def above(self, layer: Layer) -> Rootfs:
        """A copy with one more layer on top."""
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
        """The lower directories for overlayfs, bottom first: the layers' trees, or one tree of hard links
        where they are too many or not stackable. `scratch`: directory for such a tree."""
        count, joined = self._joined or (0, None)
        rest = self._distinct(self.layers[count:])
        length = sum(len(str(tree)) + _PREFIX_BYTES for tree in rest)
        if length > _PAGE_BYTES or not all(layer.stackable for layer in self.layers[count:]):
            from bareboat_images.formats import flatten

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
        """All layers as one tree of hard links, for mounts."""
        if self._joined is None or self._joined[0] != len(self.layers):
            from bareboat_images.formats import flatten

            target = scratch / f"flat-{len(self.layers)}"
            flatten.flatten(self.trees, target)
            self._joined = (len(self.layers), target)
        return self._joined[1]

    def _distinct(self, layers: Sequence[Layer]) -> list[Path]:
        """The trees of layers that are not empty. Of equal layers only the uppermost is used: overlayfs
        refuses the same directory twice."""
        last = {layer.diff_id: number for number, layer in enumerate(layers)}
        found = [self.store.layer(diff_id) for diff_id, _ in sorted(last.items(), key=lambda pair: pair[1])]
        return [tree for tree in found if not is_empty(tree)]

    def is_own(self) -> bool:
        """Whether this user owns all layers: overlayfs cannot copy up files of other users."""
        for tree in self.trees:
            with os.scandir(tree) as entries:
                first = next(entries, None)
            if first is not None:
                state = first.stat(follow_symlinks=False)
                if (state.st_uid, state.st_gid) != (os.geteuid(), os.getegid()):
                    return False
        return True


class Stubs:
    """Mount points that the root file system of a step lacks. bubblewrap makes them; they are not part of the
    layer."""

    def __init__(self, view: View, targets: Iterable[str]) -> None:
        """Raises PlaceError for a target that cannot be resolved."""
        self._view = view
        #: Paths that bubblewrap makes, parents first.
        self._made: list[str] = []
        self.places: dict[str, Place] = {}
        for target in targets:
            place = locate(view, target)
            self.places[target] = place
            if place.node is None:
                self._made += [each for each in (*place.missing, place.path) if each not in self._made]

    def path(self, target: str) -> str:
        """The mount point: the target with links resolved."""
        return self.places[target].path

    def remove(self, upper: Path) -> None:
        """Remove mount points that the step did not change, and directories without other changes. No link is
        followed: the step may have replaced a parent directory by a link."""
        with Tree(upper) as tree:
            touched = {
                os.path.dirname(path)
                for path in sorted(self._made, key=len, reverse=True)
                if tree.remove_empty(path)
            }
            for path in touched:
                self._restore(tree, path)
            _prune(tree, self._view)

    def _restore(self, tree: Tree, path: str) -> None:
        """Restore the time of a directory from which a mount point was removed."""
        found = self._view.find(path)
        if found is not None and path not in self._made:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                tree.change_folder(path, mtime_ns=os.lstat(found.node.places[0]).st_mtime_ns)


def _prune(tree: Tree, view: View) -> None:
    """Remove directories that overlayfs copied up without a change: empty, with the same mode and time as
    below."""
    for path in reversed(list(tree.folders())):
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
    """Remove a tree; ignore errors."""
    with contextlib.suppress(OSError):
        remove_tree(path)
