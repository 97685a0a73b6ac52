"""Creates mount points in a flat tree, for engines that cannot create them.

Only missing ones are created, empty; existing entries do not change, except for a dangling link, which
is replaced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bareboat_base.errors import PlanError
from bareboat_base.files.links import MOST_LINKS, follow
from bareboat_base.files.root import Root
from bareboat_base.host_files import Mount
from bareboat_base.paths import lies_in
from bareboat_images.layers.copies import FOLDER, writable
from bareboat_images.layers.view import View

#: While bubblewrap mounts, the host's root is here, in a directory beside the image's root: a link that leads
#: above the image's root leads to the host.
_HOST = "oldroot"


def make_mount_points(tree: Path, mounts: Sequence[Mount]) -> None:
    """Create a directory or an empty file at each mount's target, matching the type of its source.

    Raises PlanError if the image has another type there, or a link that an engine would follow out of the
    image.
    """
    for mount in mounts:
        place = resolve(tree, mount)
        is_folder = os.path.isdir(mount.source)
        if place.is_symlink():  # a dangling link: resolve() follows all others
            with _writable(place.parent):
                place.unlink()
        elif place.exists():
            if place.is_dir() != is_folder:
                kinds = ("a file", "a directory")
                raise PlanError(
                    f"{mount.source} is {kinds[is_folder]} and cannot be mounted at {mount.target}, "
                    f"where the image has {kinds[not is_folder]}",
                    remedy="mount it elsewhere",
                )
            continue
        missing = [place]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for folder in reversed(missing[1:]):
            _make(folder, mount, is_folder=True)
        _make(place, mount, is_folder=is_folder)


def check_stacked(view: View, mounts: Sequence[Mount]) -> None:
    """Raise PlanError if bubblewrap, which creates missing mount points in stacked layers, would follow a
    link of the image to the host's files."""

    def target(step: str) -> str | None:
        parent, _, name = step.removeprefix("/newroot").rpartition("/")
        node = view.names(parent or "/").get(name) if step.startswith("/newroot/") else None
        return os.readlink(node.places[0]) if node is not None and node.kind == "link" else None

    for mount in mounts:
        real = follow(f"/newroot/{mount.target}", target)
        if real is not None and lies_in(real, f"/{_HOST}"):
            raise _leads_out(mount)


def _leads_out(mount: Mount) -> PlanError:
    return PlanError(
        f"nothing can be mounted at {mount.target}: a link of the image on the way leads to the host",
        remedy="do not use this image; ask its publisher to rebuild it",
    )


def resolve(tree: Path, mount: Mount) -> Path:
    """The path in the tree of a mount's target, with links resolved. Raises PlanError for links that an
    engine would follow out of the tree."""
    pending = [part for part in reversed(mount.target.split("/")) if part]
    place = tree
    links = 0
    is_above = False
    while pending:
        part = pending.pop()
        if part == ".":
            continue
        if part == "..":
            is_above = is_above or place == tree
            place = place if place == tree else place.parent
            continue
        if is_above and place == tree and part == _HOST:
            raise _leads_out(mount)
        path = place / part
        if not path.is_symlink():
            place = path
            continue
        leads = os.readlink(path)
        links += 1
        if not pending and Root(str(tree)).real(os.path.join("/", place.relative_to(tree), leads)) is None:
            return path
        if leads.startswith("/") or links > MOST_LINKS:
            raise PlanError(
                f"the engine cannot mount at {mount.target}: /{path.relative_to(tree)} is a link to {leads} "
                "in the image",
                remedy="mount at what the link leads to, or elsewhere",
            )
        pending += reversed(leads.split("/"))
        pending = [each for each in pending if each]
    return place


def _make(place: Path, mount: Mount, *, is_folder: bool) -> None:
    if not place.parent.is_dir():
        raise PlanError(
            f"nothing can be mounted at {mount.target}: the image has a file on the way",
            remedy="mount it elsewhere",
        )
    with _writable(place.parent), contextlib.suppress(FileExistsError):  # another run created it concurrently
        if is_folder:
            place.mkdir(mode=0o755)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Make the directory writable inside the context, whatever its mode; then restore mode and time."""
    descriptor = os.open(folder, FOLDER)
    state = os.fstat(descriptor)
    try:
        with writable(descriptor):
            yield
    finally:
        os.utime(descriptor, ns=(state.st_atime_ns, state.st_mtime_ns))
        os.close(descriptor)
