"""What the container shows: the image's root file system, the mounts over it, and required mount points."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import msgspec

from bareboat import registry
from bareboat.engines import HOST_FILES, KERNEL, Container, Engine, run_directories, store_guard
from bareboat.engines.places import planned
from bareboat.gpu import inject
from bareboat.model import (
    Decision,
    EngineFacts,
    Image,
    Job,
    Mount,
    MpiFacts,
    Requirement,
    Rootfs,
    ScratchEntry,
    Site,
)
from bareboat.mpi import inject as mpi_inject
from bareboat.plan.engine import file_obstacle
from bareboat.plan.process import image_workdir
from bareboat.plan.situation import EngineChoice, Situation
from bareboat_base import digests
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in

#: Where programs write by default; in a read-only tree these become scratch.
_SCRATCH = ("/tmp", "/var/tmp", "/run")

#: Space for lowerdir= in mount(2)'s page of options.
_MOUNT_OPTIONS_BYTES = 3800

#: The remedies for what a node does not see or have.
NO_MODULES = "remove modules, or use a partition whose nodes have the command"
SHARED_WORKDIR = "submit from a directory on a file system that all nodes share"
SHARED_STORE = "--store DIR on a file system that all nodes share"
SHARED_MOUNT = "mount what is on a file system that all nodes share"

#: Limit of mounts for the entries of a directory.
_MOST_KEPT = 100


def scratch_folders(site: Site) -> tuple[str, ...]:
    """The writable directories over a read-only tree. They are empty, except for the image's content
    there."""
    home = site.home.rstrip("/")
    return (*_SCRATCH, *([home] if home and home not in _SCRATCH else []))


def make_container(
    situation: Situation, choice: EngineChoice, bound: tuple[Mount, ...] = ()
) -> tuple[Container, tuple[Decision, ...]]:
    """The container of the job, and its decisions. `bound`: mounts of the host's MPI."""
    job, image, rootfs, site = situation.job, situation.image, situation.rootfs, situation.runs_on
    engine, enclosure, gpu = choice.engine, choice.enclosure, choice.gpu
    if not engine.CONTAINS or image is None:
        return Container(home=site.home, passed=gpu.passed), ()
    if rootfs is None:  # an environment that is only described: this plan never runs
        flat = None if job.writable else "/not-captured"
        return Container(flat=flat, scratch=_SCRATCH, home=site.home), ()
    if enclosure.relinked:
        rootfs = msgspec.structs.replace(rootfs, flat=rootfs.relinked)
    if job.writable:
        _check_stackable(engine, image, rootfs)
    kind, why_packed = _file_kind(job, image, site, engine)
    own = None if job.writable or kind is not None else rootfs.own
    joined = None if own is None or own.bound is None else own
    root = own.path if own is not None and joined is None else rootfs.flat
    root = root if kind is None else rootfs.packed[kind]
    scratch = () if job.writable else scratch_folders(site)
    mounts = _at_real_targets(job, rootfs)
    asked = [mount.target for mount in mounts]
    shown, environments = _environments(job, image, rootfs, root, asked, scratch)
    mounts += shown
    covered = [*asked, *(mount.target for mount in mounts)]
    is_overlaid = not job.writable and engine.STACKS and enclosure.overlay
    seen_through = _seen_through(rootfs, scratch, covered) if is_overlaid else ()
    about_root = _root_decision(job, image, choice, _discarded(scratch, asked), seen_through, why_packed)
    decisions = [about_root, *environments]
    if not job.writable and not seen_through:
        can_mount = _mountable(engine, kind)
        kept, left = _kept_in_scratch(rootfs, root, scratch, asked, covered, can_mount=can_mount)
        mounts += kept
        if kept or left:
            decisions.append(_kept_decision(kept, left))
    folder = image_workdir(image)
    if job.workdir is None and _is_hidden(folder, scratch, seen_through, mounts):
        mounts.append(Mount(source=root + folder, target=folder))
    mounts += (*gpu.mounts, *bound)
    guards, about_store = store_guard.guards(mounts, rootfs, engine)
    mounts += guards
    if joined is not None:
        mounts += [Mount(source=f"{root}/{path}", target=f"/{path}") for path in joined.bound or ()]
    container = Container(
        layers=tuple(filter(None, (*rootfs.layers.values(), rootfs.points))) if job.writable else (),
        flat=root if not job.writable and kind is None else None,
        joined=None if joined is None else joined.path,
        packed=root if kind is not None else None,
        scratch=scratch,
        seen_through=seen_through,
        # Outer before inner: a mount never hides one below it.
        mounts=tuple(sorted(mounts, key=lambda mount: mount.target.split("/"))),
        identity=rootfs.identity,
        missing=_missing(job, image),
        home=site.home,
        driver=gpu.driver,
        passed=gpu.passed,
    )
    return container, (*decisions, *about_store)


def _environments(
    job: Job, image: Image, rootfs: Rootfs, root: str, asked: Sequence[str], scratch: Sequence[str]
) -> tuple[list[Mount], list[Decision]]:
    """Mounts of the image's environments that others of the job would hide. `asked`: the targets of the
    job's mounts; `scratch`: the writable directories."""
    mounts, decisions = [], []
    for prefix in image.prefixes:
        hidden = next((path for path in (*asked, *scratch) if lies_under(prefix.path, path)), None)
        if any(rootfs.targets.get(mount.target, mount.target) == prefix.path for mount in job.mounts):
            choice, reason = "of the host, in place", "the job mounts it over the image's copy"
        elif hidden is None:
            continue
        else:
            tree = rootfs.layers[prefix.layer] if job.writable else root
            mounts.append(Mount(source=tree + prefix.path, target=prefix.path))
            choice, reason = "from the image", f"the writable directory at {hidden} would hide it"
            if hidden in asked:
                reason = f"the mount of {hidden} would put the host's copy in its place"
        decisions.append(Decision(subject="environment", choice=f"{prefix.path} {choice}", reason=reason))
    return mounts, decisions


def _discarded(scratch: tuple[str, ...], mounted: list[str]) -> str:
    """Where the job may write although nothing is kept."""
    shown = [folder for folder in scratch if folder not in mounted]
    has_mounts = any(lies_under(target, folder) for target in mounted for folder in shown)
    where = "there outside of mounts" if has_mounts else "there"
    return f"{', '.join(shown)} can be written to, and what is written {where} vanishes"


def _root_decision(
    job: Job,
    image: Image,
    choice: EngineChoice,
    discarded: str,
    seen_through: tuple[str, ...],
    why_packed: str,
) -> Decision:
    subject, engine = "root file system", choice.engine
    if job.writable:
        return Decision(
            subject=subject,
            choice=f"{len(image.layers)} layers, stacked, with memory to write to on top",
            reason="asked for by writable = true: what is written anywhere vanishes with the container; "
            "reading costs more than from one tree",
        )
    if why_packed:
        return Decision(
            subject=subject, choice=f"one {engine.FILES[0]} file", reason=f"{why_packed}; {discarded}"
        )
    reason = f"{engine.NAME} runs images that are one tree"
    if engine.STACKS:
        reason = "one tree of hard links is read at the speed of the file system, stacked layers are not"
    if choice.enclosure.relinked:
        reason += "; absolute links in it are made relative"
    reason += f"; {discarded}"
    if seen_through:
        reason += f"; what the image has in {', '.join(seen_through)} is seen there, by an overlay"
    return Decision(subject=subject, choice="one flat tree, read-only", reason=reason)


def _file_kind(job: Job, image: Image, site: Site, engine: Engine) -> tuple[str | None, str]:
    """The kind of file in which the image is shown, and why; None for a tree."""
    if job.writable or job.form == "tree" or file_obstacle(engine, site) is not None:
        return None, ""
    kind = engine.FILES[0]
    if job.form == "file":
        return kind, 'asked for by form = "file"'
    store = next((found for found in site.file_systems if found.purpose == "store"), None)
    # Some file systems have no fixed number and report 0.
    if store is not None and 0 < store.free_inodes < image.inodes:
        return kind, (
            f"the tree may need {image.inodes:,} inodes, and the store's file system has "
            f"{store.free_inodes:,} free"
        )
    return None, ""


def _seen_through(rootfs: Rootfs, scratch: tuple[str, ...], covered: list[str]) -> tuple[str, ...]:
    """The scratch directories with content of the image that no mount shows or hides."""
    found = set()
    for held in rootfs.in_scratch:
        around = [folder for folder in scratch if lies_under(held.path, folder)]
        if around and not any(held.path == path or lies_under(held.path, path) for path in covered):
            found.add(max(around, key=len))
    return tuple(folder for folder in scratch if folder in found)


def _mountable(engine: Engine, kind: str | None) -> Callable[[ScratchEntry], bool]:
    """A test whether a directory of the image can certainly be mounted. Others are left out: the job did not
    request them, so they are no reason to refuse it."""

    def can(held: ScratchEntry) -> bool:
        both = held.path + held.leads_to
        # These are special characters in paths for some tools; some store paths as UTF-8.
        plain = engine.STACKS or not (set(":,!") & set(both) or any("\udc80" <= c <= "\udcff" for c in both))
        # ch-run's own tmpfs hides a squashfs's content in /tmp.
        return held.is_folder and plain and not (kind == "squashfs" and lies_under(held.leads_to, "/tmp"))

    return can


def _kept_in_scratch(
    rootfs: Rootfs,
    root: str,
    scratch: tuple[str, ...],
    asked: list[str],
    covered: list[str],
    *,
    can_mount: Callable[[ScratchEntry], bool],
) -> tuple[list[Mount], list[str]]:
    """Mounts of the image's directories below scratch directories, and the paths that stay hidden: files,
    which not every engine can mount there, and entries over the limit.

    An interpreter below the home directory (conda's, pyenv's, uv's) has its program and its libraries next to
    the environment's prefix. `root`: the image's tree or file. `asked`: the targets of the job's own mounts,
    which take precedence.
    """
    kept: list[Mount] = []
    left: list[str] = []
    for held in rootfs.in_scratch:
        if not any(lies_under(held.path, folder) for folder in scratch):
            continue
        if any(held.path == path or lies_under(held.path, path) for path in covered):
            continue
        # A directory gets a mount point for a mount below it; behind a link that would be at another path.
        is_link = held.leads_to != held.path
        if is_link and any(lies_under(path, held.path) for path in asked):
            continue
        if can_mount(held) and len(kept) < _MOST_KEPT:
            kept.append(Mount(source=root + held.leads_to, target=held.path))
        else:
            left.append(held.path)
    return kept, left


def _kept_decision(kept: list[Mount], left: list[str]) -> Decision:
    def some(paths: list[str]) -> str:
        return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")

    unseen = f"; not seen: {some(left)}" if left else ""
    return Decision(
        subject="below scratch",
        choice=(f"{some([mount.target for mount in kept])} from the image" if kept else "nothing"),
        reason=f"writable directories would hide the image's files in them{unseen}",
    )


def _at_real_targets(job: Job, rootfs: Rootfs) -> list[Mount]:
    return [
        msgspec.structs.replace(each, target=rootfs.targets.get(each.target, each.target))
        for each in shown_of_host(job)
    ]


def shown_of_host(job: Job) -> tuple[Mount, ...]:
    """The directories of the host that the job asks for: its working directory, unless that is the image's,
    and its mounts."""
    if job.workdir is None:
        return job.mounts
    return (Mount(source=job.workdir, target=job.workdir, writable=True), *job.mounts)


def _missing(job: Job, image: Image) -> tuple[str, ...]:
    """The image's WORKDIR if the job runs in it and it does not exist in the image."""
    return (image_workdir(image),) if job.workdir is None and image.process.workdir_missing else ()


def places(container: Container) -> tuple[Mount, ...]:
    """Directories that must exist although the image lacks them and nothing is mounted there."""
    if container.root is None:
        return ()
    mounted = [mount.target for mount in container.mounts]
    return tuple(
        Mount(source="/", target=path)
        for path in container.missing
        if not any(lies_under(path, target) for target in mounted)
    )


def _is_hidden(
    path: str, scratch: tuple[str, ...], seen_through: tuple[str, ...], mounts: list[Mount]
) -> bool:
    """Whether an empty directory would hide the image's content: below scratch, and shown by nothing."""
    shown = (*seen_through, *(mount.target for mount in mounts))
    return any(lies_under(path, folder) for folder in scratch) and not any(
        path == other or lies_under(path, other) for other in shown
    )


def mount_points(container: Container, *, all_places: bool) -> tuple[Mount, ...]:
    """The mount points to make in the image in advance: those in a directory that is mounted from the image,
    where none can be made later, and, with `all_places`, those outside all mounts and scratch directories.
    For stacked layers all mount points, which the engine makes."""
    files = [Mount(source=path, target=path) for path in HOST_FILES]
    if container.layers:
        made = (*KERNEL, run_directories.PLACE, container.home, *container.missing)
        return (*(Mount(source="/", target=path) for path in made), *files, *container.planned_mounts)
    if container.root is None:
        return ()
    root = planned(container.root)
    folders = [Mount(source="/", target=path) for path in (*KERNEL, *container.scratch)]
    if container.identity is not None:
        for name in ("passwd", "group"):
            files.append(Mount(source=f"{container.identity}/etc/{name}", target=f"/etc/{name}"))
    found = {mount.target: mount for mount in (*folders, *files, *container.planned_mounts)}
    places: dict[str, Mount] = {}
    for path, mount in found.items():
        around = max((other for other in found if lies_under(path, other)), key=len, default=None)
        if around is None:
            if all_places:
                places[path] = mount
        elif lies_under(found[around].source, root):
            place = found[around].source.removeprefix(root) + path.removeprefix(around)
            places[place] = Mount(source=mount.source, target=place)
    return tuple(mount for _, mount in sorted(places.items()))


def own_points(container: Container, points: tuple[Mount, ...]) -> tuple[tuple[Mount, ...], bool]:
    """The mount points that other jobs of the image do not have; and whether one lies in a directory that is
    mounted from the image."""
    if container.root is None:
        return (), False
    root = planned(container.root)
    usual = {*KERNEL, *container.scratch, *HOST_FILES, "/etc/passwd", "/etc/group"}
    own = tuple(point for point in points if point.target not in usual)
    shown = [each.source for each in container.planned_mounts if lies_under(each.source, root)]
    return own, any(lies_under(root + point.target, folder) for point in own for folder in shown)


def _check_stackable(engine: Engine, image: Image, rootfs: Rootfs) -> None:
    """Raise PlanError if the engine can stack layers, but not these layers here."""
    odd = next((layer for layer in image.layers if not layer.stackable), None)
    # mount(2) takes one page of options; bubblewrap names each layer by its path below /oldroot.
    length = sum(
        len(path.encode(errors="surrogateescape")) + len("/oldroot:") for path in rootfs.layers.values()
    )
    if odd is not None:
        short = digests.short(odd.diff_id)
        obstacle = f"the store's file system cannot mark in layer {short} what it hides of lower ones"
    elif length > _MOUNT_OPTIONS_BYTES:
        obstacle = f"the paths of {len(rootfs.layers)} layers are longer than mount(2) takes"
    else:
        return
    raise PlanError(
        f"{engine.NAME} cannot stack the image's layers, as writable = true asks: {obstacle}",
        remedy="remove writable: the image is then read-only, except /tmp, /run and the home directory",
    )


def requirements(
    job: Job,
    image: Image | None,
    container: Container,
    engine: EngineFacts | None,
    bound: tuple[Mount, ...] = (),
    *,
    at_once: bool,
) -> tuple[Requirement, ...]:
    remedy = "bareboat image capture --fresh"
    if container.packed is not None:
        remedy = "bareboat plan --prepare --form file …   # packs the image"
    elif image is not None and image.built:
        remedy = image.built
    elif image is not None and image.reference:
        remedy = f"bareboat image pull --fresh {shlex.quote(image.reference)}"
    roots = [planned(tree) for tree in (container.root, container.joined) if tree is not None]
    trees = (*container.layers, *roots)
    what = "a layer of the image" if container.packed is None else "the packed image"
    found = [Requirement(path=path, what=what, remedy=remedy) for path in container.layers]
    if container.packed is None:
        what, remedy = "the image's tree", "bareboat plan --prepare …   # makes it again"
    found += [Requirement(path=path, what=what, remedy=remedy) for path in roots]
    if engine is not None and registry.contains(engine.name) and engine.path.startswith("/"):
        found.append(
            Requirement(path=engine.path, what=f"the engine {engine.name}", remedy="bareboat doctor")
        )
    if not (trees or at_once) and image is not None and image.digest and job.image == "capture":
        # Bare metal in a study, whose arms have the same environment.
        python, remedy = image.python or "/", "an environment on a file system that all nodes share"
        found.append(Requirement(path=python, what="the bare-metal environment", remedy=remedy))
    if job.workdir is not None:
        remedy = f"mkdir -p {shlex.quote(job.workdir)}" if at_once else SHARED_WORKDIR
        found.append(Requirement(path=job.workdir, what="the working directory", remedy=remedy))
    for mount in container.planned_mounts:
        if mount.source != job.workdir and not any(lies_under(mount.source, tree) for tree in trees):
            what, remedy = "the source of a mount", "correct the mounts"
            if not at_once:
                remedy = SHARED_MOUNT
            if container.driver is not None and lies_under(mount.target, inject.TOP):
                what, remedy = "a directory of the GPU driver", "bareboat plan JOB  # on this machine"
            if mount in bound:
                what, remedy = "a part of the host's MPI", "bareboat plan JOB  # on this machine"
            found.append(Requirement(path=mount.source, what=what, remedy=remedy))
    return tuple(found)


def lies_under(path: str, folder: str) -> bool:
    """Whether the path lies below the directory; the directory itself does not."""
    return path != folder and lies_in(path, folder)


def bind_host_mpi(
    mpi: MpiFacts | None, rootfs: Rootfs | None
) -> tuple[tuple[Mount, ...], tuple[Decision, ...]]:
    """The mounts of the host's MPI, where the launcher requires it. Raises PlanError without a tree of it."""
    if mpi is None or rootfs is None:
        return (), ()
    tree = rootfs.host_mpis.get(mpi.library or "")
    if tree is None or mpi.runtime is None:
        raise PlanError(
            f"it is not known what {mpi.title} of the host needs",
            remedy="bareboat plan JOB   # on this machine",
        )
    mains = sorted(m.target for m in tree.over if m.target.rpartition("/")[2].startswith("libmpi"))
    over = f", {len(tree.over)} files over the image's own ({', '.join(mains)})" if tree.over else ""
    own = f"; the image's own {', '.join(tree.left_out)} serve it" if tree.left_out else ""
    decision = Decision(
        subject="host's MPI",
        choice=f"{mpi.title}, {mpi.library}",
        reason=f"{len(mpi.runtime.libraries) - len(tree.left_out)} libraries are bound in{over}{own}",
    )
    return mpi_inject.mounts(mpi.runtime, tree), (decision,)
