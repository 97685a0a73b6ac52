"""Where the ranks of a job read the image: from the store, or from a copy that each node makes once.

If every rank of every node reads a tree of 36,000 files from one shared file system, its servers are
overloaded: each `import` looks up thousands of names. Such file systems are made for one large file that
every node reads once, from beginning to end.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType, structs

from bareboat.engines import Container, Enclosure, NodeMount
from bareboat.engines.places import Place, planned
from bareboat.model import (
    Decision,
    Delivery,
    Image,
    Job,
    NodePath,
    Rejected,
    Requirement,
    Rootfs,
    Site,
)
from bareboat.plan.container import lies_under
from bareboat.schedulers import Scheduler
from bareboat_base.errors import PlanError
from bareboat_base.files.kinds import common_name, is_networked
from bareboat_base.paths import lies_in

_SCRATCH = "/tmp"
#: The directory of the node's trees, or the store's without trees on the node; and the job's own tree.
_TREES, _OWN_TREE = "BAREBOAT_TREES", "BAREBOAT_OWN_TREE"


def choose_delivery(
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    container: Container,
    site: Site,
    scheduler: Scheduler,
    enclosure: Enclosure,
) -> tuple[Delivery | UnsetType, tuple[Decision, ...]]:
    """The copy to node-local storage; UNSET: none. `site`: a machine that the ranks run on, as far as known.

    Raises PlanError where the requested delivery is not possible.
    """
    asked = job.delivery is not None and job.delivery != "auto"
    scratch = _SCRATCH if job.node_scratch is None else job.node_scratch
    if image is None or rootfs is None or (container.root is None and not container.layers):
        return UNSET, ()  # no image, or not yet

    def shared(reason: str) -> tuple[UnsetType, tuple[Decision, ...]]:
        return UNSET, (Decision(subject="delivery", choice="shared: ranks read the store", reason=reason),)

    if job.delivery == "shared":
        return shared("asked for")
    store = next((system for system in site.file_systems if system.purpose == "store"), None)
    kind = common_name(store.kind) if store is not None else "unknown"
    networked = is_networked(kind)
    if not asked and (scheduler.IS_LOCAL or not networked):
        return UNSET, ()  # delivery was not requested, and is not needed
    if (reason := _reason_to_share(job, container, scheduler, asked=asked)) is not None:
        return shared(reason)
    assert container.flat is not None
    flat = rootfs.relinked if enclosure.relinked else rootfs.flat
    shown = planned(container.flat)
    if not enclosure.reads_tree and not any(lies_in(each.source, shown) for each in container.planned_mounts):
        return shared("the engine reads no tree of the store")
    obstacle = _obstacle(job, flat, scratch)
    if obstacle is not None:
        if job.delivery == "node":
            raise PlanError(
                f"the image cannot be brought to the nodes: {obstacle}", remedy="--delivery shared"
            )
        return shared(obstacle)
    reason = "asked for"
    if job.delivery != "node":
        reason = f"the store is on {kind}, which {job.topology.nodes} nodes would read at once"
    variety = "relinked" if enclosure.relinked else "flat"
    above, _, name = flat.rpartition("/")
    delivery = Delivery(
        archive=rootfs.packed["relinked.tar" if enclosure.relinked else "tar"],
        folder=f"{scratch.rstrip('/')}/bareboat-{site.uid}/{variety}",
        shared=above,
        name=name,
        inodes=image.inodes,
        own=UNSET if rootfs.own is None else rootfs.own.path,
    )
    return delivery, (_decision(image, scratch, reason),)


def _reason_to_share(job: Job, container: Container, scheduler: Scheduler, *, asked: bool) -> str | None:
    """Why no tree is copied, whatever the engine. Raises PlanError where the job requests it."""
    if scheduler.IS_LOCAL:
        return "this machine runs the job at once, beside its store"
    if not asked and job.topology.nodes == 1:
        return "one node alone reads less of the image than it would have to copy"
    if container.packed is not None:
        return "the image is one file already"
    if container.flat is not None:
        return None
    if job.delivery == "node":
        raise PlanError(
            "writable = true stacks the image's layers where they are, "
            'and delivery = "node" brings a tree to the nodes',
            remedy="leave one of them out",
        )
    return "writable = true stacks the image's layers where they are"


def _decision(image: Image, scratch: str, reason: str) -> Decision:
    return Decision(
        subject="delivery",
        choice=f"node: once to {scratch} of each node, as one file",
        reason=f"{reason}; about {image.size_bytes / 1e6:,.0f} MB and {image.inodes:,} inodes there",
        rejected=(
            Rejected(
                choice="shared",
                reason=f"every rank would open the image's files, of {image.inodes:,}, in the store",
                remedy="--delivery shared",
            ),
        ),
    )


def _obstacle(job: Job, flat: str, scratch: str) -> str | None:
    """Why the container cannot be made of a tree on the node."""
    for mount in job.mounts:
        if mount.writable and (scratch == mount.source or lies_under(scratch, mount.source)):
            return f"{mount.source}, which the job mounts writable, would show the image in {scratch}"
    if not flat.isascii() or any(c.isspace() or c in "'\",:!\\" for c in flat):
        # Engines quote constant paths, but not the value of the variable at run time.
        return f"the path of the store, {flat}, holds more than letters, digits and . _ + - /"
    return None


def archive_needed(delivery: Delivery | UnsetType) -> tuple[Requirement, ...]:
    if delivery is UNSET:
        return ()
    what = "the archive of the image"
    return (Requirement(path=delivery.archive, what=what, remedy="bareboat plan --prepare JOB   # makes it"),)


def on_the_node(container: Container, delivery: Delivery) -> Container:
    """The container with the node's trees instead of the store's."""

    own = None if delivery.own is UNSET else delivery.own

    def moved(path: str) -> NodePath | None:
        if own is not None and lies_in(path, own):
            return NodePath(_OWN_TREE, path.removeprefix(own), path)
        if not lies_in(path, delivery.shared):
            return None
        return NodePath(_TREES, path.removeprefix(delivery.shared), path)

    def place(tree: Place | None) -> Place | None:
        return tree if tree is None else moved(planned(tree)) or tree

    return structs.replace(
        container,
        flat=place(container.flat),
        joined=place(container.joined),
        mounts=tuple(
            mount
            if (source := moved(mount.source)) is None
            else NodeMount(source=source, target=mount.target, writable=mount.writable)
            for mount in container.planned_mounts
        ),
    )
