"""The data of an image on this machine that the planner requires."""

from __future__ import annotations

import os

import msgspec

from bareboat.deployment import driver_links as links
from bareboat.deployment import exposed, host_mpi, identity, points, scratch
from bareboat.engines import HOST_FILES
from bareboat.model import Image, Job, Rootfs, Site
from bareboat.plan.container import scratch_folders
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
        drivers=links.provide(store, runs_on),
        in_scratch=scratch.contents(store, image, runs_on),
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
