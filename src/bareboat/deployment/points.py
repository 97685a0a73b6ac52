"""Mount points of containers: their paths without links, and those that stacked layers lack.

bwrap follows a link of the image while the host's files are beside the image, and can make nothing in
a directory of another owner, nor through a link that leads nowhere. So it gets paths without links in the
foreground, and the missing points are in a layer of their own above the image's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from bareboat.deployment import small_layers
from bareboat.engines import HOST_FILES, KERNEL, Container
from bareboat.model import Job, Mount, Site
from bareboat.plan.container import scratch_folders, shown_of_host
from bareboat_base import codec
from bareboat_base.paths import lies_in
from bareboat_images.layers.view import View
from bareboat_images.store import Store

_FOLDER = "/"


class Points(NamedTuple):
    """`real`: each mount's target -> its path without links; `lacking`: those to make, without links."""

    real: Mapping[str, str]
    lacking: Sequence[Mount]


def is_directory(source: str) -> bool:
    """Whether the source of a mount is a directory; one that only the nodes have is taken to be one."""
    return os.path.isdir(source) or not os.path.lexists(source)


def find(view: View, container: Container) -> Points:
    """The mount points of a container with this image."""
    real: dict[str, str] = {}
    lacking = []
    covered: list[str] = []
    for mount, covers in _in_order(container):
        around = max((each for each in covered if _is_below(mount.target, each)), key=len, default=None)
        if around is not None:
            real[mount.target] = real[around].rstrip("/") + mount.target[len(around.rstrip("/")) :]
        else:
            made = _without_links(view, mount)
            real[mount.target] = made.target
            if not any(_is_below(made.target, real[at]) for at in covered):
                lacking.append(made)
        if covers:
            covered.append(mount.target)
    return Points(real, [mount for mount in lacking if view.find(mount.target) is None])


def targets_of_job(view: View, job: Job, site: Site) -> dict[str, str]:
    """The targets of a job's mounts with a link of the image on the way -> their paths without links."""
    mounts = shown_of_host(job)
    around = () if job.writable else scratch_folders(site)
    found = find(view, Container(scratch=around, home=site.home, mounts=mounts)) if mounts else None
    real = {} if found is None else found.real
    return {each.target: real[each.target] for each in mounts if real[each.target] != each.target.rstrip("/")}


def layer_of_job(store: Store, view: View, mounts: Sequence[Mount]) -> str | None:
    """The same for the mounts of a job whose image is stacked."""
    return layer(store, view, [_without_links(view, mount) for mount in mounts])


def layer(store: Store, view: View, lacking: Sequence[Mount]) -> str | None:
    """A directory to stack on the image's layers, with those of the points that do not exist and that bwrap
    cannot make."""
    owner = (os.getuid(), os.getgid())
    modes: dict[str, int] = {}
    for mount in lacking:
        path, names = _nearest(view, mount.target)
        found = view.find(path)
        if not names or found is None or found.node.kind != "folder":
            continue
        state = os.stat(found.node.places[0])
        if names[0] not in view.inside(found) and (state.st_uid, state.st_gid) == owner:
            continue
        parents = [str(each) for each in reversed(PurePosixPath(mount.target).parents)][1:]
        for path in (*parents, *([mount.target] if is_directory(mount.source) else [])):
            modes[path] = _mode(view, path)
        modes.setdefault(mount.target, small_layers.FILE)
    if not modes:
        return None
    key = codec.to_json(modes)
    return str(small_layers.provide(store, key, {path[1:]: (mode, b"") for path, mode in modes.items()}))


def _in_order(container: Container) -> Iterator[tuple[Mount, bool]]:
    """The points in the order in which bwrap mounts, and whether each covers what is below it."""
    for path in KERNEL:
        yield Mount(source=path, target=path), True
    for path in container.scratch:
        yield Mount(source=_FOLDER, target=path), True
    for path in HOST_FILES:
        if os.path.exists(path):
            yield Mount(source=path, target=path), True
    yield Mount(source=_FOLDER, target=container.home), False
    for mount in sorted(container.planned_mounts, key=lambda each: each.target.rstrip("/").split("/")):
        yield mount, True
    for path in container.missing:
        yield Mount(source=_FOLDER, target=path), False


def _without_links(view: View, mount: Mount) -> Mount:
    path, names = _nearest(view, mount.target)
    return Mount(source=mount.source, target=str(PurePosixPath(path, *names)))


def _is_below(path: str, folder: str) -> bool:
    return path != folder and lies_in(path, folder)


def _nearest(view: View, path: str) -> tuple[str, list[str]]:
    """The nearest entry above a path that exists, by its path without links, and the names below it."""
    path = os.path.normpath(path)
    names: list[str] = []
    while (found := view.find(path)) is None:
        path, name = os.path.split(path)
        names.insert(0, name)
    return found.path, names


def _mode(view: View, path: str) -> int:
    found = view.find(path)
    state = os.stat(found.node.places[0]) if found is not None else None
    return small_layers.FOLDER if state is None else stat.S_IFDIR | stat.S_IMODE(state.st_mode) & 0o1777
