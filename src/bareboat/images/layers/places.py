"""Makes the places in a flat tree at which things will be mounted, for engines that cannot make them.

Only what is missing is made, empty; nothing that is there changes, but for a link that leads nowhere,
which gives way.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from bareboat.errors import PlanError
from bareboat.files.links import MOST_LINKS, follow
from bareboat.files.root import Root
from bareboat.images.inside.view import View
from bareboat.model import Mount
from bareboat.paths import lies_in

#: While bubblewrap mounts, the host is here, and the image in a directory beside it: there, a link that leads
#: above the image's root leads to the host.
_HOST = "oldroot"


def make_mount_points(tree: Path, mounts: Sequence[Mount]) -> None:
    """A folder or an empty file at each mount's target, as its source is one or the other.

    Raises PlanError where the image has something else, or a link that an engine would follow out of it.
    """
    for mount in mounts:
        place = resolve(tree, mount)
        is_folder = os.path.isdir(mount.source)
        if place.is_symlink():  # it leads nowhere, or resolve() would have followed it
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


def check_stacked(layers: Sequence[Path], mounts: Sequence[Mount]) -> None:
    """Raise PlanError where bubblewrap, which makes what is missing in stacked layers, would follow a link of
    the image to the host's files."""
    view = View(layers)

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
    """Where in the tree a mount's target is, once the links on its way are followed."""
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
    with _writable(place.parent), contextlib.suppress(FileExistsError):  # another run made it just now
        if is_folder:
            place.mkdir(mode=0o755)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Inside, entries of the folder can be made, whatever its mode; its mode and time stay the image's."""
    state = folder.stat()
    mode = stat.S_IMODE(state.st_mode)
    if not mode & stat.S_IWUSR:
        folder.chmod(mode | stat.S_IRWXU)
    try:
        yield
    finally:
        if not mode & stat.S_IWUSR:
            folder.chmod(mode)
        os.utime(folder, ns=(state.st_atime_ns, state.st_mtime_ns))
