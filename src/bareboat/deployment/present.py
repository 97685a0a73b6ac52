"""The data of an image on this machine that the planner requires."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec

from bareboat.deployment import exposed, host_mpi, identity, points
from bareboat.engines import HOST_FILES
from bareboat.gpu import inject
from bareboat.model import Image, Job, Rootfs, ScratchEntry, Site
from bareboat.plan.container import scratch_folders
from bareboat_base import codec
from bareboat_base.files.links import follow
from bareboat_images.layers.view import View
from bareboat_images.store import Store


def present(
    store: Store,
    image: Image,
    site: Site,
    job: Job | None = None,
    *,
    node: Site | None = None,
    scratch_folder: str | None = None,
) -> Rootfs:
    """The image's paths, its user files, its entries in scratch directories, the links to GPU drivers and the
    host's MPIs, and exposed directories. `site`: where the job is submitted; `node`: where it runs, if that
    differs. `scratch_folder`: a writable directory in the store that was made for this job only."""
    runs_on = node or site
    written = [each for each in _written(job) if each != scratch_folder]
    return msgspec.structs.replace(
        rootfs_of(store, image),
        identity=identity.provide(store, image, site),
        drivers=driver_links(store, runs_on),
        in_scratch=scratch_contents(store, image, runs_on),
        absolute=_has_absolute(store, image, runs_on),
        targets={} if job is None else points.targets_of_job(store.view(image), job, runs_on),
        host_mpis=host_mpi.provide(store, image, runs_on),
        kernel_caches=str(store.kernel_caches()),
        # With a group's store also the user's own, whose programs the host starts; it has priority.
        exposed=exposed.find(store.root, written)
        | (exposed.find(store.own, written) if store.own != store.root else {}),
    )


def _written(job: Job | None) -> list[str]:
    """The directories of the host that the job's container can write to."""
    if job is None:
        return []
    own = [] if job.workdir is None else [job.workdir]
    return [*own, *(mount.source for mount in job.mounts if mount.writable)]


#: Paths that are mounted in every container, beside those of `HOST_FILES`.
_SYSTEM = ("/dev", "/proc", "/sys", "/etc/passwd", "/etc/group")


def _has_absolute(store: Store, image: Image, site: Site) -> bool:
    """Whether a path on which every container has a mount has an absolute link on its way in the image. An
    engine that mounts before it changes its root to the image would follow it out of the image."""
    view = store.view(image)
    return any(_is_absolute(view, path) for path in (*_SYSTEM, *HOST_FILES, *scratch_folders(site)))


def _is_absolute(view: View, path: str) -> bool:
    found: list[str] = []

    def target(step: str) -> str | None:
        parent, _, name = step.rpartition("/")
        node = view.names(parent or "/").get(name)
        if node is None or node.kind != "link":
            return None
        found.append(os.readlink(node.places[0]))
        return found[-1]

    # A dangling link is replaced by the mount point.
    follow(path if view.find(path) is not None else os.path.dirname(path), target)
    return any(leads.startswith("/") for leads in found)


def rootfs_of(store: Store, image: Image) -> Rootfs:
    """The paths of the image's layers, bottom first, its flat tree and its packed files."""
    return Rootfs(
        layers={layer.diff_id: str(store.layer(layer.diff_id)) for layer in image.layers},
        flat=str(store.flat(image.digest)),
        relinked=str(store.relinked(image.digest)),
        packed={kind: str(path) for kind, path in store.packed_files(image.digest).items()},
    )


def scratch_contents(store: Store, image: Image, site: Site) -> tuple[ScratchEntry, ...]:
    """The entries of the image in the directories that are scratch directories in a container (/tmp,
    the user's home), sorted by path. A capture has environments there: ~/.pyenv, ~/miniconda3, an
    interpreter that is the target of a link in ~. They must be visible, whether an overlay can be mounted or
    not.

    A directory with only one subdirectory is replaced by that: for ~/.local/share/uv/python, the caller does
    not have to keep all of ~/.local. Not included: empty directories (/run/lock, which must be writable),
    dangling links, sockets and other special files.
    """
    view = store.view(image)
    folders = scratch_folders(site)
    found = {held.path: held for folder in folders for held in _in_folder(view, folder, folders)}
    return tuple(held for _, held in sorted(found.items()))


def _in_folder(view: View, folder: str, scratch: Sequence[str]) -> Iterator[ScratchEntry]:
    top = view.find(folder)
    if top is None or top.path != folder or top.node.kind != "folder":
        # The directory does not exist, or it is a link, whose target an engine mounts separately.
        return
    pending = [folder]
    while pending:
        here = pending.pop()
        for name, node in view.names(here).items():
            path = f"{here.rstrip('/')}/{name}"
            if path in scratch:
                continue  # handled separately
            if node.kind == "folder":
                if any(each.startswith(f"{path}/") for each in scratch):
                    pending.append(path)  # as a whole, it would hide the scratch directory in it
                else:
                    yield from _whole(view, path)
                continue
            leads_to = view.find(path)
            if leads_to is not None and leads_to.node.kind in ("file", "folder"):
                is_folder = leads_to.node.kind == "folder"
                yield ScratchEntry(path=path, leads_to=leads_to.path, is_folder=is_folder)


def _whole(view: View, path: str) -> Iterator[ScratchEntry]:
    while len(inside := view.names(path)) == 1:
        ((name, node),) = inside.items()
        if node.kind != "folder":
            break
        path = f"{path}/{name}"
    if inside:
        yield ScratchEntry(path=path, leads_to=path, is_folder=True)


def driver_links(store: Store, site: Site) -> dict[str, str]:
    """Vendor -> the directory of links to the files of its driver on this site, made once per driver. It
    holds links, never the files. Raises StoreError when it cannot be made."""
    found = {driver.vendor: inject.links(driver) for driver in site.gpu_drivers}
    return {vendor: _made_links(store, links) for vendor, links in found.items() if links}


def _made_links(store: Store, links: dict[str, str]) -> str:
    final = store.driver(codec.digest(links).removeprefix("sha256:"))
    if not final.is_dir():
        with store.scratch(own=True) as scratch:
            folder = scratch / "driver"
            for name, target in links.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
                (folder / name).symlink_to(target)
            store.publish(folder, final)
    return str(final)
