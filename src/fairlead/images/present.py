"""What the planner wants to know of an image on this machine, looked up and made."""

from __future__ import annotations

import msgspec

from fairlead.gpu import links
from fairlead.images import host_mpi, identity, scratch
from fairlead.model import Image, Rootfs, Site
from fairlead.store import Store


def present(store: Store, image: Image, site: Site, *, node: Site | None = None) -> Rootfs:
    """Where the image lies, who its user is, what it has below the folders to write to, the links to the
    GPU drivers and to the host's MPIs. `site`: where the job is handed over; `node`: where it runs, when that
    is another."""
    runs_on = node or site
    return msgspec.structs.replace(
        store.rootfs(image),
        identity=identity.provide(store, image, site),
        drivers=links.provide(store, runs_on),
        held=scratch.contents(store, image, runs_on),
        host_mpis=host_mpi.provide(store, image, runs_on),
    )
