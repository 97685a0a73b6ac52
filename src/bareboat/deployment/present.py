"""The data of an image on this machine that the planner requires."""

from __future__ import annotations

import msgspec

from bareboat.deployment import absolute, exposed, host_mpi, identity, scratch
from bareboat.deployment import driver_links as links
from bareboat.deployment.rootfs import rootfs_of
from bareboat.model import Image, Job, Rootfs, Site
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
        absolute=absolute.on_the_way(store, image, runs_on),
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
