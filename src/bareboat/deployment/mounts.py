"""Whether a job's mounts can be composed, before an engine tries it: each below another, or in the image."""

from __future__ import annotations

import os

from bareboat import registry
from bareboat.model import Job, Mount
from bareboat.program_analysis.command import Sight
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in, to_make
from bareboat_images.model import Image
from bareboat_images.store import Store

#: File systems of the kernel: nothing can be created in them.
_OF_KERNEL = ("/proc/", "/sys/")
#: Devices that every container has.
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


def check(store: Store, image: Image, job: Job) -> None:
    """Raise PlanError for a mount that cannot have its mount point. Sources that this machine does not have
    are not judged."""
    if not registry.contains(job.engine):
        return
    mounts = list(job.mounts)
    if job.workdir is not None and all(mount.target != job.workdir for mount in mounts):
        mounts.append(Mount(source=job.workdir, target=job.workdir, writable=True))
    for mount in job.mounts:
        if not os.path.exists(mount.source):
            continue
        if job.workdir == mount.target and not os.path.isdir(mount.source):
            raise _refused(mount, "the job's working directory must be a directory", "set another workdir")
        outer = [
            each for each in mounts if each.target != mount.target and lies_in(mount.target, each.target)
        ]
        if outer:
            _check_below(mount, max(outer, key=lambda each: len(each.target)))
        elif mount.target.startswith(_OF_KERNEL):
            if not os.path.exists(mount.target):
                raise _refused(mount, f"the kernel has no {mount.target}", "mount it elsewhere")
        elif mount.target in _DEVICES:
            raise _refused(mount, "programs use this device", "mount it elsewhere")
        elif image.digest and not lies_in(mount.target, "/dev"):
            _check_inside(mount, store, image)


def _check_below(mount: Mount, outer: Mount) -> None:
    """Check a mount point that lies in what another mount shows."""
    place = outer.source.rstrip("/")
    parts = mount.target[len(outer.target.rstrip("/")) :].strip("/").split("/")
    for part in parts:
        if not os.path.isdir(place or "/"):
            if os.path.exists(place):
                raise _refused(mount, f"{place} is not a directory", "mount it elsewhere")
            return  # made by the engine, in a writable mount
        place = f"{place}/{part}"
        if not os.path.lexists(place) and not outer.writable:
            at = outer.source.rstrip("/") + mount.target[len(outer.target.rstrip("/")) :]
            reason = f"{outer.source}, mounted read-only at {outer.target}, lacks it"
            raise _refused(mount, reason, to_make(at, is_directory=os.path.isdir(mount.source)))
    if os.path.exists(place) and os.path.isdir(place) != os.path.isdir(mount.source):
        kinds = ("a file", "a directory")
        raise _refused(mount, f"{place} is {kinds[os.path.isdir(place)]}", "mount it elsewhere")


def _check_inside(mount: Mount, store: Store, image: Image) -> None:
    """Check the directories of the image on the way to a mount point."""
    layers, flat = store.trees(image), store.flat(image.digest)
    if not all(layer.is_dir() for layer in layers):
        return
    sight = Sight(layers, tree=flat if flat.is_dir() else None)
    parts = mount.target.strip("/").split("/")
    for count in range(1, len(parts)):
        path = "/" + "/".join(parts[:count])
        node = sight.find(path)
        if node is None:
            return
        if node.kind in ("file", "other"):
            raise _refused(mount, f"{path} is a file in the image", "mount it elsewhere")


def _refused(mount: Mount, why: str, remedy: str) -> PlanError:
    return PlanError(f"{mount.source} cannot be mounted at {mount.target}: {why}", remedy=remedy)
