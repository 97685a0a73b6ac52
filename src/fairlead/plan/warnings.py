"""What will probably go wrong on this site although nothing forbids it."""

from __future__ import annotations

from fairlead.engines import LEAST_SHM_BYTES
from fairlead.model import Image, Job, Site


def site_warnings(job: Job, image: Image | None, site: Site) -> tuple[str, ...]:
    if image is None or "torch" not in image.frameworks:
        return ()
    shm = next((system for system in site.file_systems if system.purpose == "shm"), None)
    ranks = job.topology.ranks_per_node
    if shm is None or shm.free_bytes >= LEAST_SHM_BYTES * ranks:
        return ()
    return (
        f"{shm.path} has {shm.free_bytes / 2**20:,.0f} MiB free for {ranks} ranks: a PyTorch DataLoader with "
        "workers passes batches through it, and is killed by a bus error when it is full; use num_workers=0, "
        f"or: sudo mount -o remount,size=50% {shm.path}",
    )
