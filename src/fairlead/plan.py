"""The planner: (job, image, site) -> Plan. A pure function: no disk, no process, no environment.

What can be known to fail fails here, with the reason and the command that mends it.
"""

from __future__ import annotations

import shlex

from fairlead import registry
from fairlead.engines import HOST_FILES, Container, Engine, Suitable, Unsuitable
from fairlead.errors import PlanError
from fairlead.launchers import Launchable, Launcher
from fairlead.model import (
    Command,
    Decision,
    Image,
    Job,
    Mount,
    Plan,
    Position,
    Rejected,
    Requirement,
    Rootfs,
    Site,
)

#: Where programs write although nobody told them to; in a read-only tree these become empty folders.
_SCRATCH = ("/tmp", "/var/tmp", "/run")

#: How many ways out an error names, the cheapest engine's first.
_WAYS_OUT = 3

#: What lowerdir= may take of the page of options that mount(2) has.
_MOUNT_OPTIONS_BYTES = 3800


def plan(job: Job, image: Image | None, rootfs: Rootfs | None, site: Site) -> Plan:
    """Decide everything. `image` and `rootfs` are None for a job on bare metal without a capture.

    Raises PlanError when the job cannot run as asked.
    """
    decisions: list[Decision] = []
    scheduler = _choose_scheduler(job, site, decisions)
    engine, suitable = _choose_engine(job, image, site, decisions)
    launcher = _choose_launcher(job, image, decisions)
    container = _container(job, image, rootfs, site, engine, suitable, decisions)
    command = _compose(job, image, site, engine, launcher, container)
    return Plan(
        job=job,
        image_digest=image.digest if image is not None and engine.CONTAINS else None,
        engine=engine.NAME,
        launcher=launcher.NAME,
        scheduler=scheduler,
        command=command,
        decisions=tuple(decisions),
        warnings=registry.scheduler(scheduler).warnings(job.topology, site),
        requirements=_requirements(job, image, container),
        needs_flat=container.flat is not None,
        mount_points=_mount_points(container) if suitable.mount_points else (),
        rank_log=launcher.RANK_LOG,
    )


def _choose_scheduler(job: Job, site: Site, decisions: list[Decision]) -> str:
    name = job.scheduler or "local"
    objection = registry.scheduler(name).objection(job.topology, site)
    if objection is not None:
        raise PlanError(objection[0], remedy=objection[1])
    topology = job.topology
    decisions.append(
        Decision(
            subject="scheduler",
            choice=name,
            reason="asked for" if job.scheduler else "this machine runs it at once",
        )
    )
    decisions.append(
        Decision(
            subject="topology",
            choice=f"{topology.nodes} node x {topology.ranks_per_node} ranks = "
            f"world size {topology.world_size}",
            reason=f"{site.hostname} has {site.cpus} CPUs and {len(site.gpus)} GPUs",
        )
    )
    return name


def _choose_engine(
    job: Job, image: Image | None, site: Site, decisions: list[Decision]
) -> tuple[Engine, Suitable]:
    """The engine asked for, else the first, in the registry's order of cost, that holds a container."""
    rejected = []
    chosen: tuple[Engine, Suitable] | None = None
    for name in [job.engine] if job.engine else registry.names("engines"):
        engine = registry.engine(name)
        verdict = engine.judge(site, image)
        if isinstance(verdict, Unsuitable):
            rejected.append(Rejected(choice=name, reason=verdict.reason, remedy=verdict.remedy))
        elif not engine.CONTAINS and not job.engine:
            rejected.append(
                Rejected(
                    choice=name,
                    reason="it is no container: taken only when asked for",
                    remedy=f"--engine {name}",
                )
            )
        elif chosen is not None:
            rejected.append(Rejected(choice=name, reason=f"{chosen[0].NAME} costs less to start"))
        else:
            chosen = engine, verdict
    if chosen is None:
        raise _no_engine(job, rejected)
    decisions.append(
        Decision(
            subject="engine",
            choice=chosen[0].NAME,
            reason=("asked for; " if job.engine else "") + chosen[1].reason,
            rejected=tuple(rejected),
        )
    )
    return chosen


def _no_engine(job: Job, rejected: list[Rejected]) -> PlanError:
    blocking = [r for r in rejected if r.choice != "native"] or rejected
    lines = [f"{r.choice}: {r.reason}" for r in rejected]
    ways = list(dict.fromkeys(r.remedy for r in blocking if r.remedy))[:_WAYS_OUT] or ["fairlead doctor"]
    if job.engine:
        message = f"the engine {job.engine} cannot run here: {rejected[0].reason}"
    else:
        message = "no engine on this machine can hold a container"
    native = "" if job.engine == "native" else "; or, without a container: --engine native"
    return PlanError(
        message, context="\n".join(lines) if not job.engine else "", remedy="; or: ".join(ways) + native
    )


def _choose_launcher(job: Job, image: Image | None, decisions: list[Decision]) -> Launcher:
    rejected: list[Rejected] = []
    for name in [job.launcher] if job.launcher else registry.names("launchers"):
        launcher = registry.launcher(name)
        verdict = launcher.judge(job.command, job.topology, image)
        if isinstance(verdict, Launchable):
            decisions.append(
                Decision(
                    subject="launcher",
                    choice=f"{name}, {launcher.POSITION.value}",
                    reason=("asked for; " if job.launcher else "") + verdict.reason,
                    rejected=tuple(rejected),
                )
            )
            return launcher
        rejected.append(Rejected(choice=name, reason=verdict.reason, remedy=verdict.remedy))
    raise PlanError(
        f"no launcher can start {' '.join(job.command)!r} as {job.topology.world_size} ranks",
        context="\n".join(f"{r.choice}: {r.reason}" for r in rejected),
        remedy=next((r.remedy for r in reversed(rejected) if r.remedy), "fairlead doctor"),
    )


def _container(
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    site: Site,
    engine: Engine,
    suitable: Suitable,
    decisions: list[Decision],
) -> Container:
    if not engine.CONTAINS or image is None:
        return Container(home=site.home)
    if rootfs is None:  # an environment that is only described: nobody runs this plan
        return Container(flat=None if engine.STACKS else "/not-captured", scratch=_SCRATCH, home=site.home)
    obstacle = _obstacle_to_stacking(engine, image, rootfs, suitable)
    flat = obstacle is not None
    decisions.append(
        Decision(
            subject="root file system",
            choice="one flat tree, read-only" if flat else f"{len(image.layers)} layers, stacked",
            reason=f"{obstacle}; the tree is made of hard links"
            if flat
            else "overlayfs works for this user: nothing is copied; writes go to memory and vanish",
        )
    )
    scratch = (*_SCRATCH, site.home) if flat else ()
    mounts = [Mount(source=job.workdir, target=job.workdir, writable=True), *job.mounts]
    hiding = [mount.target for mount in mounts] + list(scratch)
    for prefix in image.prefixes:
        hidden = [path for path in hiding if _lies_under(prefix.path, path)]
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
        asked = [job.workdir, *(mount.target for mount in job.mounts)]
        mounts += _kept_in_scratch(image, rootfs, scratch, asked)
    # Outer before inner: a mount never hides one below it.
    mounts.sort(key=lambda mount: mount.target.split("/"))
    return Container(
        layers=() if flat else tuple(rootfs.layers.values()),
        flat=rootfs.flat if flat else None,
        scratch=scratch,
        mounts=tuple(mounts),
        identity=rootfs.identity,
        home=site.home,
    )


def _kept_in_scratch(image: Image, rootfs: Rootfs, scratch: tuple[str, ...], asked: list[str]) -> list[Mount]:
    """What the image has beside its environments below a scratch folder: an interpreter below the home folder
    (conda's, pyenv's, uv's) has its program and its libraries next to what is known as its prefix.

    `asked`: the targets of the job's own mounts, which come first.
    """
    found: dict[str, Mount] = {}
    for prefix in image.prefixes:
        for folder in scratch:
            if not _lies_under(prefix.path, folder):
                continue
            top = "/".join(prefix.path.split("/")[: folder.count("/") + 2])
            alone = not any(path == top or _lies_under(path, top) or _lies_under(top, path) for path in asked)
            if alone and top != prefix.path:
                found[top] = Mount(source=rootfs.flat + top, target=top)
    return [*found.values()]


def _mount_points(container: Container) -> tuple[Mount, ...]:
    """What must have a place in the image. What lies in a mounted folder or in scratch has it there."""
    folders = [Mount(source="/", target=path) for path in ("/dev", "/proc", "/sys", *container.scratch)]
    files = [Mount(source=path, target=path) for path in HOST_FILES]
    if container.identity is not None:
        for name in ("passwd", "group"):
            files.append(Mount(source=f"{container.identity}/etc/{name}", target=f"/etc/{name}"))
    found = {mount.target: mount for mount in (*folders, *files, *container.mounts)}
    return tuple(
        mount for path, mount in sorted(found.items()) if not any(_lies_under(path, other) for other in found)
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


def _compose(
    job: Job, image: Image | None, site: Site, engine: Engine, launcher: Launcher, container: Container
) -> Command:
    """scheduler(launcher(engine(workload))) for launchers outside the container,
    scheduler(engine(launcher(workload))) for those inside."""
    environment = {**(image.environment if image is not None else {}), **job.environment}
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if engine.CONTAINS and image is not None:
        environment["FAIRLEAD_IMAGE"] = image.digest
    command = Command(argv=job.command, environment=environment, workdir=job.workdir)
    python = (image.python if image is not None else None) or "python3"
    if launcher.POSITION is Position.INSIDE:
        return engine.wrap(launcher.wrap(command, job.topology, python), container, site)
    return launcher.wrap(engine.wrap(command, container, site), job.topology, python)


def _requirements(job: Job, image: Image | None, container: Container) -> tuple[Requirement, ...]:
    remedy = "fairlead capture --fresh"
    if image is not None and image.reference:
        remedy = f"fairlead image pull --fresh {shlex.quote(image.reference)}"
    trees = (*container.layers, *([container.flat] if container.flat else ()))
    found = [Requirement(path=path, what="a layer of the image", remedy=remedy) for path in trees]
    found.append(
        Requirement(
            path=job.workdir, what="the working folder", remedy=f"mkdir -p {shlex.quote(job.workdir)}"
        )
    )
    for mount in container.mounts:
        if mount.source != job.workdir and not any(_lies_under(mount.source, tree) for tree in trees):
            found.append(
                Requirement(path=mount.source, what="the source of a mount", remedy="correct the mounts")
            )
    return tuple(found)


def _lies_under(path: str, folder: str) -> bool:
    """Whether the path lies below the folder; the folder itself does not."""
    return path != folder and path.startswith(folder.rstrip("/") + "/")
