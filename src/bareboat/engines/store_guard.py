"""Protection of the store against a container's writes to the user's own directories. Pure.

A writable mount of the home directory contains the store: images that other jobs run, programs, job scripts
that the host runs again. So the store is mounted over itself, read-only, and each directory between the mount
and the store over itself unchanged: a mount point cannot be renamed, so nobody can replace the store.
"""

from __future__ import annotations

from bareboat.engines import Engine
from bareboat.model import Decision, Mount, Rootfs
from bareboat_base.errors import PlanError


def guards(
    mounts: list[Mount], rootfs: Rootfs, engine: Engine
) -> tuple[tuple[Mount, ...], tuple[Decision, ...]]:
    """The mounts that protect it. Raises PlanError for a writable mount inside the store itself."""
    found, decisions = [], []
    for mount in mounts:
        inner = rootfs.exposed.get(mount.source) if mount.writable else None
        if inner is None:
            continue
        if inner == ".":
            raise PlanError(
                f"{mount.source} is in the store: the job could change images, programs and job scripts",
                remedy="keep the store elsewhere: --store DIR; or mount another directory",
            )
        path = f"{mount.source.rstrip('/')}/{inner}"
        if engine.KEEPS_READ_ONLY:
            source, target = mount.source.rstrip("/"), mount.target.rstrip("/")
            for part in inner.split("/"):
                source, target = f"{source}/{part}", f"{target}/{part}"
                found.append(Mount(source=source, target=target, writable=True))
            found[-1] = Mount(source=source, target=target)
            choice, reason = f"{path} is read-only", f"it lies in {mount.source}, which is mounted writable"
        else:
            choice = f"{path} can be written to by the job"
            reason = (
                f"it lies in {mount.source}, which is mounted writable, and {engine.NAME} keeps nothing in "
                "such a directory read-only; the job can change images, programs and job scripts"
            )
        decisions.append(Decision(subject="store", choice=choice, reason=reason))
    return tuple(dict.fromkeys(found)), tuple(decisions)
