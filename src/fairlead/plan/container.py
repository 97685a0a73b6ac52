"""What the container shows: the image's root file system, the mounts over it, and what must be there."""

from __future__ import annotations

import shlex

import msgspec

from fairlead.engines import HOST_FILES, Container, Engine, Suitable
from fairlead.gpu import inject
from fairlead.model import Decision, EngineFacts, Image, Job, Mount, Requirement, Rootfs, Site
from fairlead.plan.gpus import Gpu
from fairlead.plan.process import image_workdir

#: Where programs write although nobody told them to; in a read-only tree these become empty folders.
_SCRATCH = ("/tmp", "/var/tmp", "/run")

#: What lowerdir= may take of the page of options that mount(2) has.
_MOUNT_OPTIONS_BYTES = 3800


def make_container(
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    site: Site,
    engine: Engine,
    suitable: Suitable,
    gpu: Gpu,
    decisions: list[Decision],
) -> Container:
    if not engine.CONTAINS or image is None:
        return Container(home=site.home, passed=gpu.passed)
    if rootfs is None:  # an environment that is only described: nobody runs this plan
        return Container(flat=None if engine.STACKS else "/not-captured", scratch=_SCRATCH, home=site.home)
    if suitable.relinked:
        rootfs = msgspec.structs.replace(rootfs, flat=rootfs.relinked)
    obstacle = _obstacle_to_stacking(engine, image, rootfs, suitable)
    flat = obstacle is not None
    decisions.append(
        Decision(
            subject="root file system",
            choice="one flat tree, read-only" if flat else f"{len(image.layers)} layers, stacked",
            reason=f"{obstacle}; the tree is made of hard links"
            + (", absolute links in it are made relative" if suitable.relinked else "")
            if flat
            else "overlayfs works for this user: nothing is copied; writes go to memory and vanish",
        )
    )
    scratch = (*_SCRATCH, site.home) if flat else ()
    mounts = [*_own_folder(job), *job.mounts]
    hiding = [mount.target for mount in mounts] + list(scratch)
    for prefix in image.prefixes:
        hidden = [path for path in hiding if lies_under(prefix.path, path)]
        if hidden:
            tree = rootfs.flat if flat else rootfs.layers[prefix.layer]
            mounts.append(Mount(source=tree + prefix.path, target=prefix.path))
            decisions.append(
                Decision(
                    subject="environment",
                    choice=f"{prefix.path} from the image",
                    reason=f"the mount of {hidden[0]} would put the host's copy in its place",
                )
            )
    if flat:
        asked = [mount.target for mount in (*_own_folder(job), *job.mounts)]
        mounts += _kept_in_scratch(image, rootfs, scratch, asked)
        folder = image_workdir(image)
        if job.workdir is None and any(lies_under(folder, path) for path in scratch):
            mounts.append(Mount(source=rootfs.flat + folder, target=folder))
    mounts += gpu.mounts
    # Outer before inner: a mount never hides one below it.
    mounts.sort(key=lambda mount: mount.target.split("/"))
    return Container(
        layers=() if flat else tuple(rootfs.layers.values()),
        flat=rootfs.flat if flat else None,
        scratch=scratch,
        mounts=tuple(mounts),
        identity=rootfs.identity,
        missing=_missing(job, image),
        home=site.home,
        driver=gpu.driver,
        passed=gpu.passed,
    )


def _kept_in_scratch(image: Image, rootfs: Rootfs, scratch: tuple[str, ...], asked: list[str]) -> list[Mount]:
    """What the image has beside its environments below a scratch folder: an interpreter below the home folder
    (conda's, pyenv's, uv's) has its program and its libraries next to what is known as its prefix.

    `asked`: the targets of the job's own mounts, which come first.
    """
    found: dict[str, Mount] = {}
    for prefix in image.prefixes:
        for folder in scratch:
            if not lies_under(prefix.path, folder):
                continue
            top = "/".join(prefix.path.split("/")[: folder.count("/") + 2])
            alone = not any(path == top or lies_under(path, top) or lies_under(top, path) for path in asked)
            if alone and top != prefix.path:
                found[top] = Mount(source=rootfs.flat + top, target=top)
    return [*found.values()]


def _own_folder(job: Job) -> list[Mount]:
    """The job's working folder; none when that is the image's."""
    if job.workdir is None:
        return []
    return [Mount(source=job.workdir, target=job.workdir, writable=True)]


def _missing(job: Job, image: Image) -> tuple[str, ...]:
    """The image's WORKDIR, where the job runs in it and the image does not have it."""
    return (image_workdir(image),) if job.workdir is None and image.process.workdir_missing else ()


def places(container: Container) -> tuple[Mount, ...]:
    """What is missing in the flat tree and must be there, though nothing is mounted at it."""
    if container.flat is None:
        return ()
    mounted = [mount.target for mount in container.mounts]
    return tuple(
        Mount(source="/", target=path)
        for path in container.missing
        if not any(lies_under(path, target) for target in mounted)
    )


def mount_points(container: Container) -> tuple[Mount, ...]:
    """What must have a place in the image. What lies in a mounted folder or in scratch has it there."""
    folders = [Mount(source="/", target=path) for path in ("/dev", "/proc", "/sys", *container.scratch)]
    files = [Mount(source=path, target=path) for path in HOST_FILES]
    if container.identity is not None:
        for name in ("passwd", "group"):
            files.append(Mount(source=f"{container.identity}/etc/{name}", target=f"/etc/{name}"))
    found = {mount.target: mount for mount in (*folders, *files, *container.mounts)}
    return tuple(
        mount for path, mount in sorted(found.items()) if not any(lies_under(path, other) for other in found)
    )


def _obstacle_to_stacking(engine: Engine, image: Image, rootfs: Rootfs, suitable: Suitable) -> str | None:
    """Why the layers cannot be stacked, or None when they can."""
    if not engine.STACKS:
        return f"{engine.NAME} runs images that are one tree"
    if not suitable.overlay:
        return "overlayfs cannot be mounted by this user here"
    odd = next((layer for layer in image.layers if not layer.stackable), None)
    if odd is not None:
        return f"the store's file system cannot mark in layer {odd.diff_id[:19]} what it hides of lower ones"
    # mount(2) takes one page of options; bubblewrap names each layer by its path below /oldroot.
    length = sum(
        len(path.encode(errors="surrogateescape")) + len("/oldroot:") for path in rootfs.layers.values()
    )
    if length > _MOUNT_OPTIONS_BYTES:
        return f"the paths of {len(rootfs.layers)} layers are longer than mount(2) takes"
    return None


def requirements(
    job: Job, image: Image | None, container: Container, engine: EngineFacts | None
) -> tuple[Requirement, ...]:
    remedy = "fairlead capture --fresh"
    if image is not None and image.reference:
        remedy = f"fairlead image pull --fresh {shlex.quote(image.reference)}"
    trees = (*container.layers, *([container.flat] if container.flat else ()))
    found = [Requirement(path=path, what="a layer of the image", remedy=remedy) for path in trees]
    if engine is not None and engine.name != "native" and engine.path.startswith("/"):
        found.append(
            Requirement(path=engine.path, what=f"the engine {engine.name}", remedy="fairlead doctor")
        )
    if job.workdir is not None:
        remedy = f"mkdir -p {shlex.quote(job.workdir)}"
        found.append(Requirement(path=job.workdir, what="the working folder", remedy=remedy))
    for mount in container.mounts:
        if mount.source != job.workdir and not any(lies_under(mount.source, tree) for tree in trees):
            what, remedy = "the source of a mount", "correct the mounts"
            if container.driver is not None and lies_under(mount.target, inject.TOP):
                what, remedy = "a folder of the GPU driver", "fairlead plan JOB  # on this machine"
            found.append(Requirement(path=mount.source, what=what, remedy=remedy))
    return tuple(found)


def lies_under(path: str, folder: str) -> bool:
    """Whether the path lies below the folder; the folder itself does not."""
    return path != folder and path.startswith(folder.rstrip("/") + "/")
