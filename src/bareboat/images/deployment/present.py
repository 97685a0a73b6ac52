"""What the planner wants to know of an image on this machine, looked up and made."""

from __future__ import annotations

import msgspec

from bareboat.gpu import links
from bareboat.images.deployment import exposed, host_mpi, identity
from bareboat.images.inside import absolute, scratch
from bareboat.model import Image, Job, Rootfs, Site
from bareboat.store import Store


def present(
    store: Store,
    image: Image,
    site: Site,
    job: Job | None = None,
    *,
    node: Site | None = None,
    scratch_folder: str | None = None,
) -> Rootfs:
    """Where the image lies, who its user is, what it has below the folders to write to, the links to the
    GPU drivers and to the host's MPIs. `site`: where the job is submitted; `node`: where it runs, when that
    is another. `scratch_folder`: one in the store that was made for this job alone, to write to."""
    runs_on = node or site
    written = [each for each in _written(job) if each != scratch_folder]
    return msgspec.structs.replace(
        store.rootfs(image),
        identity=identity.provide(store, image, site),
        drivers=links.provide(store, runs_on),
        in_scratch=scratch.contents(store, image, runs_on),
        absolute=absolute.on_the_way(store, image, runs_on),
        host_mpis=host_mpi.provide(store, image, runs_on),
        # Beside a group's store there is the user's own, whose tools and scripts the host starts: it wins.
        exposed=exposed.find(store.root, written)
        | (exposed.find(store.own, written) if store.own != store.root else {}),
    )


def _written(job: Job | None) -> list[str]:
    """The directories of the host that the job's container may write to."""
    if job is None:
        return []
    own = [] if job.workdir is None else [job.workdir]
    return [*own, *(mount.source for mount in job.mounts if mount.writable)]
